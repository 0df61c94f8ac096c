import pytest
import torch

import credibly as cr


def test_a_profile_is_not_what_a_judge_is_fitted_on():
    clf = cr.Classifier(torch.nn.Linear(4, 3))
    profile = cr.credibility(clf, torch.randn(3, 4), gamma=10.0)
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"ordinary.*got a Profile"):
        cr.Judge.fit(clf, profile)


def test_inputs_of_another_shape_are_refused_before_the_model_fails_on_them():
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3)).eval()
    judge = cr.Judge.fit(net, torch.rand(120, 1, 4, 4))
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"the ordinary ones, \(1, 4, 4\)"):
        judge(torch.rand(2, 1, 2, 4))
