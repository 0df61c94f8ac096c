from .corruptions import Corruption as Corruption
from .input_set import InputSet as InputSet
from .rows import Rows as Rows
from .rows import read_study as read_study
from .study import Study as Study
from .study_result import StudyResult as StudyResult
from .summary import summarise as summarise
