"""Models by name or file: what is loaded, what is refused, and that nothing runs unasked."""

import sys

import joblib
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import credibly as cr
from credibly.io.fingerprints import digest_of_module

FACTORY = """
import torch
from torch import nn
import neighbour
import credibly

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.first = nn.Linear(4, 5)
        self.norm = nn.BatchNorm1d(5)
        self.last = nn.Linear(5, 3)
    def forward(self, x):
        return self.last(self.norm(self.first(x)).tanh())

def make():
    return Net()

ready = Net().eval()
training = Net()
number = 7
halve = lambda x: x / 2

def wrapped():
    return credibly.Classifier(Net().eval(), classes=["a", "b", "c"])

def function():
    return lambda x: x[:, :3]

class Random(nn.Linear):
    def __init__(self):
        super().__init__(4, 3)

def random_classifier():
    return credibly.Classifier(Random().eval())

class Alive(nn.Linear):
    most = now = 0
    def __init__(self):
        Alive.now += 1
        Alive.most = max(Alive.most, Alive.now)
        torch.manual_seed(0)
        super().__init__(4, 3)
    def __del__(self):
        Alive.now -= 1

def broken():
    raise ZeroDivisionError("no weights here")

def needs(argument):
    return Net()
"""


@pytest.fixture
def factory(tmp_path):
    (tmp_path / "neighbour.py").write_text("")
    path = tmp_path / "factory.py"
    path.write_text(FACTORY)
    yield str(path)
    sys.modules.pop("neighbour", None)


def test_a_factory_is_called_and_its_module_put_into_evaluation_mode(factory):
    loaded = cr.load_classifier(f"{factory}:make", classes=["x", "y", "z"])
    assert loaded.kind == "python"
    assert not any(module.training for module in loaded.classifier.net.modules())
    assert "training mode" in loaded.notes[0]
    assert loaded.classifier.classes == ("x", "y", "z")
    assert cr.credibility(loaded.classifier, torch.randn(2, 4), gamma=1.0).credibility.shape == (
        2,
        3,
    )


def test_a_class_of_modules_is_a_factory(factory):
    assert type(cr.load_classifier(f"{factory}:Net").classifier.net).__name__ == "Net"


def test_a_module_that_exists_is_not_changed(factory):
    assert cr.load_classifier(f"{factory}:ready").notes == ()
    net = cr.load_classifier(f"{factory}:training").classifier
    with pytest.raises(cr.errors.ModelError, match="training mode"):
        cr.credibility(net, torch.randn(2, 4), gamma=1.0)


def test_a_classifier_is_taken_as_it_is(factory):
    assert cr.load_classifier(f"{factory}:wrapped").classifier.classes == ("a", "b", "c")
    with pytest.raises(cr.errors.InvalidArgumentError, match="taken as it is"):
        cr.load_classifier(f"{factory}:wrapped", loss="hinge")


def test_settings_reach_the_classifier(factory):
    loaded = cr.load_classifier(
        f"{factory}:make", loss="hinge", preprocess=f"{factory}:halve", dtype=torch.float64
    )
    clf, x = loaded.classifier, torch.randn(2, 4, dtype=torch.float64)
    assert repr(clf.loss).startswith("Hinge")
    torch.testing.assert_close(clf.logits(x), clf.net(x / 2))


def test_a_function_may_be_the_model(factory):
    clf = cr.load_classifier(f"{factory}:function").classifier
    assert clf.logits(torch.ones(1, 4)).shape == (1, 3)


def test_a_module_by_its_dotted_name():
    loaded = cr.load_classifier("credibly.data.sample:classifier")
    assert len(loaded.classifier.classes) == 10


@pytest.mark.parametrize(
    ("attribute", "words"),
    [
        ("nothing", "has no attribute 'nothing'"),
        ("number", "is a int, not a model"),
        ("broken", "ZeroDivisionError: no weights here"),
        ("needs", "called without arguments"),
    ],
)
def test_bad_attributes_are_explained(factory, attribute, words):
    with pytest.raises(cr.errors.ModelError, match=words):
        cr.load_classifier(f"{factory}:{attribute}")


@pytest.mark.parametrize("spec", ["no.such.module:make", "credibly.nothing:make"])
def test_a_module_that_cannot_be_imported_is_named(spec):
    with pytest.raises(cr.errors.ModelError, match="cannot be imported: ModuleNotFoundError"):
        cr.load_classifier(spec)


@pytest.mark.parametrize("spec", [":make", "a.b:", "a.b:c d"])
def test_a_spec_of_another_form_is_refused(spec):
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"package\.module:attribute"):
        cr.load_classifier(spec)


@pytest.mark.parametrize("attribute", ["Random", "random_classifier"])
def test_random_weights_are_refused(factory, attribute):
    with pytest.raises(
        cr.errors.ModelError, match=r"are random, not trained.*--weights FILE"
    ) as caught:
        cr.load_classifier(f"{factory}:{attribute}")
    assert "inside the factory" in str(caught.value)


def test_random_weights_are_no_matter_where_trained_ones_follow(factory, tmp_path):
    trained = {"weight": torch.ones(3, 4), "bias": torch.zeros(3)}
    save_file(trained, tmp_path / "w.safetensors")
    loaded = cr.load_classifier(f"{factory}:Random", weights=tmp_path / "w.safetensors")
    assert torch.equal(loaded.classifier.net.weight, trained["weight"])


def test_the_look_at_the_weights_never_holds_two_models(factory):
    loaded = cr.load_classifier(f"{factory}:Alive")
    assert type(loaded.classifier.net).most == 1


def test_weights_are_loaded(factory, tmp_path):
    other = cr.load_classifier(f"{factory}:make").classifier.net
    with torch.no_grad():
        other.last.weight.add_(1)
    save_file(other.state_dict(), tmp_path / "w.safetensors")
    loaded = cr.load_classifier(f"{factory}:make", weights=tmp_path / "w.safetensors")
    x = torch.randn(3, 4)
    torch.testing.assert_close(loaded.classifier.net(x), other(x))
    assert loaded.fingerprint != cr.load_classifier(f"{factory}:make").fingerprint


def test_tied_weights_need_one_name_in_the_file(tmp_path):
    (tmp_path / "tied.py").write_text(
        "import torch\n"
        "def make():\n"
        "    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)).eval()\n"
        "    net[1].weight = net[0].weight\n"
        "    return net\n"
    )
    weight, path = torch.rand(3, 3), tmp_path / "w.safetensors"
    biases = {"0.bias": torch.ones(3), "1.bias": torch.zeros(3)}

    def load(**weights):
        save_file({**biases, **{k[-1] + ".weight": v for k, v in weights.items()}}, path)
        return cr.load_classifier(f"{tmp_path / 'tied.py'}:make", weights=path).classifier.net

    for given in ({"w0": weight}, {"w1": weight}, {"w0": weight, "w1": weight.clone()}):
        assert torch.equal(load(**given)[1].weight, weight)
    with pytest.raises(
        cr.errors.FileFormatError, match=r"0\.weight and 1\.weight differ in the file"
    ):
        load(w0=weight, w1=weight + 1)
    with pytest.raises(cr.errors.FileFormatError, match=r"0\.weight is missing from the file"):
        load()


def missing(state):
    del state["last.bias"]


def unexpected(state):
    state["extra"] = torch.ones(1)


def reshaped(state):
    state["last.weight"] = torch.ones(4, 5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (missing, "last.bias is missing from the file"),
        (unexpected, "extra is not in the module"),
        (reshaped, r"last.weight is \(4, 5\) in the file and \(3, 5\) in the module"),
    ],
)
def test_weights_of_another_network_are_refused(factory, tmp_path, change, words):
    state = dict(cr.load_classifier(f"{factory}:make").classifier.net.state_dict())
    change(state)
    save_file(state, tmp_path / "w.safetensors")
    with pytest.raises(cr.errors.FileFormatError, match=words):
        cr.load_classifier(f"{factory}:make", weights=tmp_path / "w.safetensors")


def test_names_with_a_prefix_are_listed_and_the_wrapper_is_named(factory, tmp_path):
    state = dict(cr.load_classifier(f"{factory}:make").classifier.net.state_dict())
    wrapped = {f"module.{name}": tensor for name, tensor in state.items()}
    save_file(wrapped, tmp_path / "w.safetensors")
    with pytest.raises(
        cr.errors.FileFormatError, match=r"first\.bias is missing.*more differences.*DataParallel"
    ):
        cr.load_classifier(f"{factory}:make", weights=tmp_path / "w.safetensors")


def test_weights_that_are_no_safetensors_are_refused(factory, tmp_path):
    (tmp_path / "w.safetensors").write_bytes(b"nonsense")
    with pytest.raises(cr.errors.FileFormatError, match="not a readable safetensors"):
        cr.load_classifier(f"{factory}:make", weights=tmp_path / "w.safetensors")
    with pytest.raises(cr.errors.FileFormatError, match=r"nowhere\.safetensors: no such file"):
        cr.load_classifier(f"{factory}:make", weights=tmp_path / "nowhere.safetensors")


def test_the_fingerprint_knows_weights_and_code(factory, tmp_path):
    first = cr.load_classifier(f"{factory}:make").fingerprint
    assert first == cr.load_classifier(f"{factory}:make").fingerprint
    (tmp_path / "factory.py").write_text(FACTORY.replace(".tanh()", ".sigmoid()"))
    assert cr.load_classifier(f"{factory}:make").fingerprint != first


def test_the_fingerprint_is_that_of_the_model_and_not_of_its_spelling(
    factory, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "factory.py").write_text(FACTORY)
    specs = [factory, "factory.py", "./factory.py", "inside/factory.py", "factory"]
    specs.append("inside.factory")
    found = {cr.load_classifier(f"{spec}:make").fingerprint for spec in specs}
    assert len(found) == 1
    halved = {
        cr.load_classifier(f"{factory}:make", preprocess=f"{spec}:halve").fingerprint
        for spec in specs
    }
    assert len(halved) == 1
    assert halved != found
    for name in ("factory", "inside.factory", "inside"):
        sys.modules.pop(name)


def test_any_bit_of_any_tensor_changes_the_digest():
    net = nn.BatchNorm1d(3).to(torch.bfloat16)
    before = digest_of_module(net)
    net.running_mean[1] += 0.5
    assert digest_of_module(net) != before


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("m.onnx", "not a valid ONNX file"),
        ("m.pt", "runs code when it is opened"),
        ("m.pth", "--weights weights.safetensors"),
        ("m.safetensors", "do not say what to compute"),
        ("m.pkl", "--unsafe-pickle"),
        ("m.joblib", "skops.io.dump"),
        ("m.pt2", "can run code that is hidden in it"),
        ("m.py", "name what to take from it"),
        ("m.xyz", "not a known kind"),
        ("nowhere.skops", "no such file"),
    ],
)
def test_files_that_are_not_opened_come_with_a_remedy(tmp_path, name, words):
    if not name.startswith("nowhere"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(cr.errors.FileFormatError, match=words):
        cr.load_classifier(tmp_path / name)


class _Bomb:
    def __reduce__(self):
        return (open, ("exploded", "w"))


@pytest.mark.parametrize("name", ["m.pkl", "m.joblib", "m.pt2"])
def test_a_pickle_does_not_run_unless_asked(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    joblib.dump(_Bomb(), tmp_path / name)
    with pytest.raises(cr.errors.FileFormatError, match="trusted=True"):
        cr.load_classifier(tmp_path / name)
    assert not (tmp_path / "exploded").exists()


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).eval()
    x = (torch.randn(2, 4),)
    many = ({0: torch.export.Dim("n")},)
    torch.export.save(torch.export.export(net, x, dynamic_shapes=many), folder / "any.pt2")
    torch.export.save(torch.export.export(net, x), folder / "two.pt2")
    return folder, net


def test_an_exported_program_gives_what_the_module_gave(programs):
    folder, net = programs
    loaded = cr.load_classifier(folder / "any.pt2", trusted=True)
    x = torch.randn(7, 4)
    torch.testing.assert_close(loaded.classifier.logits(x), net(x))
    assert loaded.kind == "torch.export"
    assert cr.credibility(loaded.classifier, x, gamma=1.0).usable.all()


def test_an_exported_program_needs_a_dynamic_batch(programs):
    with pytest.raises(cr.errors.ModelError, match=r"\(2, 4\) only.*dynamic_shapes"):
        cr.load_classifier(programs[0] / "two.pt2", trusted=True)


def test_weights_and_precision_of_a_file_are_its_own(programs):
    with pytest.raises(cr.errors.InvalidArgumentError, match="holds its own weights"):
        cr.load_classifier(programs[0] / "any.pt2", weights="w.safetensors", trusted=True)
    with pytest.raises(cr.errors.InvalidArgumentError, match="dtype"):
        cr.load_classifier(programs[0] / "any.pt2", dtype=torch.float64, trusted=True)


def test_a_damaged_program_is_named(tmp_path):
    (tmp_path / "m.pt2").write_bytes(b"nonsense")
    with pytest.raises(cr.errors.FileFormatError, match=r"torch\.export\.load failed"):
        cr.load_classifier(tmp_path / "m.pt2", trusted=True)


@pytest.fixture(scope="module")
def fitted():
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 3)), rng.integers(0, 3, 60)
    return LogisticRegression().fit(x, y), x


def own_step(x):
    return x


def test_unknown_types_in_a_skops_file_are_listed_with_the_remedy(tmp_path):
    skops = pytest.importorskip("skops.io")
    from sklearn.preprocessing import FunctionTransformer

    skops.dump(FunctionTransformer(own_step), tmp_path / "m.skops")
    with pytest.raises(cr.errors.FileFormatError, match=r"--trust \S*own_step"):
        cr.load_classifier(tmp_path / "m.skops")


def test_a_damaged_skops_file_is_named(tmp_path):
    pytest.importorskip("skops.io")
    (tmp_path / "m.skops").write_bytes(b"nonsense")
    with pytest.raises(cr.errors.FileFormatError, match="not a readable skops file"):
        cr.load_classifier(tmp_path / "m.skops")


@pytest.mark.parametrize("kind", ["skops", "pickle"])
def test_a_fitted_model_predicts_as_before(tmp_path, fitted, kind):
    pytest.importorskip("credibly.adapters.sklearn")
    skops = pytest.importorskip("skops.io")
    model, x = fitted
    if kind == "skops":
        skops.dump(model, tmp_path / "m.skops")
        loaded = cr.load_classifier(tmp_path / "m.skops")
    else:
        joblib.dump(model, tmp_path / "m.joblib")
        loaded = cr.load_classifier(tmp_path / "m.joblib", trusted=True)
    assert loaded.kind == kind
    losses = loaded.classifier.losses(torch.from_numpy(x)).detach()
    np.testing.assert_allclose((-losses).exp().numpy(), model.predict_proba(x), atol=1e-12)


def test_types_that_are_named_are_trusted(tmp_path):
    pytest.importorskip("credibly.adapters.sklearn")
    skops = pytest.importorskip("skops.io")
    from sklearn.neural_network import MLPClassifier

    x = np.random.default_rng(0).normal(size=(20, 3))
    model = MLPClassifier((2,), solver="adam", tol=10.0, n_iter_no_change=1).fit(x, x[:, 0] > 0)
    skops.dump(model, tmp_path / "m.skops")
    unknown = skops.get_untrusted_types(file=tmp_path / "m.skops")
    for trusted in (unknown, True):
        loaded = cr.load_classifier(tmp_path / "m.skops", trusted=trusted, classes=["no", "yes"])
        assert loaded.classifier.classes == ("no", "yes")
        losses = loaded.classifier.losses(torch.from_numpy(x)).detach()
        np.testing.assert_allclose((-losses).exp().numpy(), model.predict_proba(x), atol=1e-12)


def test_a_missing_library_is_named(tmp_path, monkeypatch):
    (tmp_path / "m.skops").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "skops.io", None)
    with pytest.raises(cr.errors.MissingExtraError, match=r"credibly\[sklearn\]"):
        cr.load_classifier(tmp_path / "m.skops")


ESTIMATORS = """
import numpy as np
import skops.io
import credibly
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.tree import DecisionTreeClassifier

rng = np.random.default_rng(0)
x, y = rng.normal(size=(60, 3)), rng.integers(0, 3, 60)
ready = LogisticRegression().fit(x, y)
unfitted = LogisticRegression()
estimator = credibly.CredibilityClassifier(LogisticRegression(), gamma=2.5).fit(x, y)

def plain():
    return LogisticRegression().fit(x, y)

def credible():
    return credibly.CredibilityClassifier(
        LogisticRegression(), gamma=2.5, space="standardised"
    ).fit(x, y)

def tree():
    return DecisionTreeClassifier().fit(x, y)

def stored():
    return skops.io.load("mlp.skops")
"""


@pytest.fixture
def estimators(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "estimators.py").write_text(ESTIMATORS)
    return "estimators.py"


@pytest.mark.parametrize("name", ["ready", "plain", "estimator", "credible"])
def test_python_code_may_give_a_fitted_scikit_learn_model(estimators, fitted, name):
    model, x = fitted
    loaded = cr.load_classifier(f"{estimators}:{name}")
    losses = loaded.classifier.losses(torch.from_numpy(x))
    np.testing.assert_allclose((-losses).exp().numpy(), model.predict_proba(x), atol=1e-12)
    own = name in ("estimator", "credible")
    kind = "CredibilityClassifier" if own else "LogisticRegression"
    assert loaded.description == f"{kind} from {estimators}:{name}"
    assert bool(loaded.notes) is own
    assert not own or "gamma=2.5" in loaded.notes[0]
    assert (loaded.classifier.space is not None) is (name == "credible")
    assert loaded.fingerprint == cr.load_classifier(f"{estimators}:{name}").fingerprint
    named = cr.load_classifier(f"{estimators}:{name}", classes=["a", "b", "c"]).classifier
    assert named.classes == ("a", "b", "c")
    assert named.space is loaded.classifier.space or own
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"`outputs`.*scikit-learn model"):
        cr.load_classifier(f"{estimators}:{name}", outputs="logits")


def test_settings_reach_the_twin_of_a_factory(estimators):
    clf = cr.load_classifier(f"{estimators}:plain", loss="logistic", dtype=torch.float32).classifier
    assert clf.dtype == torch.float32
    assert repr(clf.loss).startswith("Logistic")


@pytest.mark.parametrize(
    ("name", "words"),
    [("unfitted", "not fitted"), ("tree", "piecewise constant"), ("number", "no attribute")],
)
def test_estimators_without_a_twin_are_explained(estimators, name, words):
    with pytest.raises(cr.errors.ModelError, match=words):
        cr.load_classifier(f"{estimators}:{name}")


def test_a_factory_that_trusts_too_little_is_told_about_trusted(estimators, tmp_path):
    skops = pytest.importorskip("skops.io")
    from sklearn.neural_network import MLPClassifier

    x = np.random.default_rng(0).normal(size=(20, 3))
    model = MLPClassifier((2,), solver="adam", tol=10.0, n_iter_no_change=1).fit(x, x[:, 0] > 0)
    skops.dump(model, tmp_path / "mlp.skops")
    with pytest.raises(
        cr.errors.ModelError, match=r"_optimizers.*load\(FILE, trusted=\["
    ) as caught:
        cr.load_classifier(f"{estimators}:stored")
    assert "takes no arguments" not in str(caught.value)
    (tmp_path / "early.py").write_text(f"{ESTIMATORS}\nat_once = stored()\n")
    with pytest.raises(cr.errors.ModelError, match=r"cannot be imported.*trusted=\["):
        cr.load_classifier("early.py:at_once")
