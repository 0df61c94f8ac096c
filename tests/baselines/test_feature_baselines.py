"""Baselines of the last hidden layer, against numbers of pytorch-ood, scikit-learn and formulas."""

import math

import pytest
import torch
from sklearn.covariance import ledoit_wolf
from torch import nn

import credibly as cr
from credibly import baselines as b
from credibly.baselines.ordinary_baselines import shrunk_covariance

KNOWN = (torch.arange(96.0).double().reshape(12, 8) * 0.7).sin().abs()
KNOWN = KNOWN + 0.1 * (torch.arange(96).reshape(12, 8) % 5)
NEW = (torch.arange(32.0).double().reshape(4, 8) * 1.3).cos().abs() * 1.5


def head():
    layer = nn.Linear(8, 3).double()
    layer.weight.data = (torch.arange(24.0).double().reshape(3, 8) * 0.9).sin()
    layer.bias.data = torch.tensor([0.1, -0.2, 0.3]).double()
    return layer.eval()


@pytest.fixture(scope="module")
def clf():
    return cr.Classifier(head())  # the features are the inputs


# what pytorch-ood 0.4.0 gives for the same features, weights and settings, as scores of trust
PEER = {
    "ASH s": [17.97609286000635, -1.6514942908847, 4.713237867267229, 18.75586278028761],
    "ASH b": [5.566188560117788, 0.2241032573625592, 2.1100384866692634, 5.685523457066945],
    "ASH p": [3.306597395364565, 0.5945441049075616, 1.8093841460223383, 3.145637381292817],
    "SCALE": [189.75745265607705, 260.0705305194537, 24.17712629730619, 282.37833943296613],
    "ReAct": [1.7242511825657938, 2.403843670632301, 1.0193754057115199, 2.1091969742184644],
    "fDBD": [0.18325349688529968, 0.36128273606300354, 0.2625134289264679, 0.26867204904556274],
    "NCI": [0.1416729986667633, 0.536333441734314, -0.32821032404899597, 0.41660764813423157],
    "neighbours": [-0.5481784597742768, -0.523012344585463, -0.5934179665704578, -0.459283923083],
}  # fmt: skip
MAKE = {
    "ASH s": lambda _: b.ASH(percentile=0.65),
    "ASH b": lambda _: b.ASH(percentile=0.65, variant="b"),
    "ASH p": lambda _: b.ASH(percentile=0.65, variant="p"),
    "SCALE": lambda _: b.SCALE(percentile=0.85),
    "ReAct": lambda clf: b.ReAct.fit(clf, KNOWN, percentile=0.9),
    "fDBD": lambda clf: b.FDBD.fit(clf, KNOWN),
    "NCI": lambda clf: b.NCI.fit(clf, KNOWN, alpha=0.001),
    "neighbours": lambda clf: b.NearestNeighbours.fit(clf, KNOWN, k=5),
}


@pytest.mark.parametrize("name", MAKE)
def test_the_scores_are_those_of_pytorch_ood(clf, name):
    assert MAKE[name](clf)(clf, NEW).tolist() == pytest.approx(PEER[name], rel=1e-5)


@pytest.mark.parametrize("count", [5, 40, 400])
def test_the_covariance_is_shrunk_as_scikit_learn_does(count):
    rows = torch.randn(count, 6, generator=torch.Generator().manual_seed(count)).double()
    rows = rows * torch.tensor([1.0, 2.0, 0.1, 1.0, 5.0, 1.0]).double()
    expected, _ = ledoit_wolf(rows.numpy(), assume_centered=True)
    assert torch.allclose(shrunk_covariance(rows), torch.from_numpy(expected))


def test_rows_of_zeros_have_a_covariance_of_zeros():
    assert bool((shrunk_covariance(torch.zeros(5, 3).double()) == 0).all())


@pytest.mark.parametrize("labels", [None, [0, 2] * 6])
def test_mahalanobis_is_the_distance_to_the_nearest_class(clf, labels):
    found = b.Mahalanobis.fit(clf, KNOWN, labels)(clf, NEW)
    classes = head()(KNOWN).argmax(1) if labels is None else torch.tensor(labels)
    groups = [KNOWN[classes == k] for k in classes.unique()]
    residuals = torch.cat([group - group.mean(0) for group in groups])
    inverse = torch.linalg.inv(shrunk_covariance(residuals))
    far = [min(math.sqrt((x - g.mean(0)) @ inverse @ (x - g.mean(0))) for g in groups) for x in NEW]
    assert found.tolist() == pytest.approx([-d for d in far])


def test_laplace_has_the_variances_of_the_dense_posterior(clf):
    found = b.LastLayerLaplace.fit(clf, KNOWN, precision=2.0, trained_on=500)
    h = torch.cat([KNOWN, torch.ones(len(KNOWN), 1).double()], 1)
    p = head()(KNOWN).softmax(1).detach()
    moment = sum(torch.outer(row, row) for row in h) / len(h)
    curvature = 500 * sum(torch.diag(q) - torch.outer(q, q) for q in p) / len(p)
    dense = torch.linalg.inv(torch.kron(curvature, moment) + 2.0 * torch.eye(27).double())
    for x, variances in zip(NEW, found.variances(NEW), strict=True):
        jacobian = torch.kron(torch.eye(3).double(), torch.cat([x, x.new_ones(1)]))
        expected = (jacobian @ dense @ jacobian.T).diagonal()
        assert torch.allclose(variances, expected)


def test_laplace_is_less_sure_far_away_and_keeps_the_class_near_data(clf):
    laplace = b.LastLayerLaplace.fit(clf, KNOWN)
    plain, far = b.MaxSoftmax(), 50 * NEW
    assert bool((laplace(clf, far) < plain(clf, far)).all())
    sure = b.LastLayerLaplace.fit(clf, KNOWN, precision=1e12)
    assert torch.allclose(sure(clf, NEW), plain(clf, NEW))


def test_one_logit_is_as_two():
    one, two = nn.Linear(8, 1).double(), nn.Linear(8, 2).double()
    two.weight.data = torch.cat([-one.weight, one.weight]).detach() / 2
    two.bias.data = torch.cat([-one.bias, one.bias]).detach() / 2
    single = cr.Classifier(one.eval())
    both = cr.Classifier(two.eval())
    for make in (b.FDBD.fit, b.NCI.fit, b.ReAct.fit, b.LastLayerLaplace.fit):
        expected, found = make(both, KNOWN)(both, NEW), make(single, KNOWN)(single, NEW)
        assert torch.allclose(found, expected)


def test_the_baselines_that_a_model_allows():
    body = nn.Sequential(nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 3)).double().eval()
    assert len(b.fitted_baselines(cr.Classifier(body), KNOWN)) == 9
    behind = nn.Sequential(nn.Linear(8, 3), nn.Tanh()).double().eval()
    names = set(b.fitted_baselines(cr.Classifier(behind), KNOWN))
    assert names == {"feature norm", "Mahalanobis", "nearest neighbours"}
    bare = cr.Classifier(lambda x: x[:, :3])
    assert b.fitted_baselines(bare, KNOWN) == {}
    with pytest.raises(cr.errors.ModelError, match="no linear layer"):
        b.FeatureNorm()(bare, NEW)
    with pytest.raises(cr.errors.ModelError, match="not its logits"):
        b.ASH()(cr.Classifier(behind), NEW)


def test_chunks_and_broken_rows_change_nothing(clf):
    x = torch.cat([NEW, torch.full((1, 8), torch.nan).double()])
    for baseline in b.fitted_baselines(clf, KNOWN).values():
        whole, parts = baseline(clf, x), baseline(clf, x, chunk_size=1)
        assert torch.equal(whole.isnan(), torch.tensor([False] * 4 + [True]))
        assert torch.allclose(whole, parts, equal_nan=True)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda _: b.ASH(percentile=1.5), "percentile"),
        (lambda _: b.ASH(variant="q"), "variant"),
        (lambda clf: b.NearestNeighbours.fit(clf, KNOWN, k=13), "at most 12"),
        (lambda clf: b.NCI.fit(clf, KNOWN, alpha=-1), "alpha"),
        (lambda clf: b.ReAct.fit(clf, KNOWN[:1]), "at least two finite inputs"),
        (lambda clf: b.Mahalanobis.fit(clf, KNOWN, [0, 1]), "labels"),
        (lambda clf: b.LastLayerLaplace.fit(clf, KNOWN, precision=0), "precision"),
        (lambda _: b.TestTimeAugmentation(views=()), "views"),
        (lambda _: b.TestTimeAugmentation(views=lambda x: x), "views"),
        (lambda _: b.Ensemble(members=[]), "members.*none"),
        (lambda _: b.Ensemble(members=nn.Linear(8, 3)), "members.*a Linear"),
        (lambda clf: b.TestTimeAugmentation(views=(lambda x: x[:, :2],))(clf, NEW), "shape"),
        (lambda clf: b.Ensemble(members=[nn.Linear(8, 4).double()])(clf, NEW), "same number"),
    ],
)  # fmt: skip
def test_wrong_settings_are_refused(clf, make, words):
    with pytest.raises(cr.errors.InvalidArgumentError, match=words):
        make(clf)


def test_views_and_members_are_averaged_by_probability_of_the_models_class(clf):
    net, other = head(), nn.Linear(8, 3).double().eval()
    views = (lambda x: x.flip(-1), lambda x: 0.5 * x)
    kept = net(NEW).argmax(1, keepdim=True)

    def odds(logits):
        p = torch.stack([z.softmax(1) for z in logits]).mean(0).gather(1, kept).squeeze(1)
        return (p / (1 - p)).log().detach()

    seen = b.TestTimeAugmentation(views=views)
    assert torch.allclose(seen(clf, NEW), odds([net(NEW), *(net(v(NEW)) for v in views)]))
    assert seen.passes(3) == pytest.approx(1.0)
    several = b.Ensemble(members=(other, cr.Classifier(other)))
    assert torch.allclose(several(clf, NEW), odds([net(NEW), other(NEW), other(NEW)]))
    assert several.passes(3) == pytest.approx(1.0)


@pytest.mark.parametrize("baseline", [b.ASH(), b.ASH(variant="b"), b.SCALE()])
@pytest.mark.parametrize("sign", [0.0, -1.0])
def test_features_that_do_not_add_up_to_a_positive_number_have_a_score(baseline, sign):
    """Where all are zero the logits are those of the bias; where the sum is tiny, none overflow."""
    layer, x = head(), torch.zeros(3, 8).double()
    x[2], x[1:, 0] = sign, sign * 1e-9
    scores = baseline(cr.Classifier(layer), x)
    assert bool(scores.isfinite().all())
    assert float(scores[0]) == pytest.approx(float(layer.bias.detach().logsumexp(0)))
