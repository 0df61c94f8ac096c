"""Models of other libraries, seen as a `Classifier`: one file or folder each."""
