"""Whatever classifies can be judged: heads, losses, functions, and models of other libraries."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from torch import nn

import credibly as cr
from tests.reference import models

Verdict = cr.Verdict
KNOWN, NEW = models.inputs(150, seed=3), models.inputs(40, seed=4)
FAR = 200 * models.inputs(5, seed=5)


def check(judge, new, far, predicted):
    """Every input has a verdict, few ordinary ones raise an alarm, far ones do."""
    found = judge(new)
    assert found.predicted.tolist() == [int(k) for k in predicted]
    alarms = [v in (Verdict.OUTLIER, Verdict.TAMPERED) for v in found.verdicts]
    assert sum(alarms) <= 0.1 * len(new)
    assert found.verdicts.count(Verdict.TRUST) > len(new) / 2
    assert bool(found.trust.isfinite().all())
    assert all(v in (Verdict.OUTLIER, Verdict.TAMPERED) for v in judge(far).verdicts)
    return found


class Probabilities(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = models.smooth_network(classes=3)

    def forward(self, x):
        return self.inner(x).softmax(1)


def outputs(classes):
    return models.smooth_network(classes=classes)


HEADS = {
    "two classes": lambda: (outputs(2), lambda z: z.argmax(1)),
    "one logit": lambda: (outputs(1), lambda z: z[:, 0] > 0),
    "one logit, logistic": lambda: (
        cr.Classifier(outputs(1), loss="logistic"), lambda z: z[:, 0] > 0,
    ),
    "hinge": lambda: (cr.Classifier(outputs(3), loss="hinge"), lambda z: z.argmax(1)),
    "one versus rest": lambda: (
        cr.Classifier(outputs(3), loss="one_versus_rest_hinge"), lambda z: z.argmax(1),
    ),
    "probabilities": lambda: (
        cr.Classifier(Probabilities().eval(), outputs="probabilities"), lambda z: z.argmax(1),
    ),
    "sixty classes": lambda: (outputs(60), lambda z: z.argmax(1)),
    "a function": lambda: (lambda x: x[:, :4] ** 3 - x[:, 4:], lambda z: z.argmax(1)),
    "scaled": lambda: (
        cr.Classifier(outputs(3), space=cr.Space.standardised(KNOWN)), lambda z: z.argmax(1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HEADS)
def test_every_head_and_loss_is_judged(name):
    net, predict = HEADS[name]()
    judge = cr.Judge.fit(net, KNOWN, false_alarms=0.02)
    run = net.net if isinstance(net, cr.Classifier) else net
    with torch.no_grad():
        predicted = predict(run(NEW))
    found = check(judge, NEW, FAR, predicted.long())
    assert ("features" in found.signals) == (name != "a function")
    if name in ("two classes", "one logit", "one logit, logistic"):
        assert judge.facts.classes == 2
        assert "p_norm" not in found.signals


def test_one_logit_and_two_are_the_same_model():
    """A logit z and the pair (-z/2, z/2) have the same probabilities, so the same trust."""
    one = outputs(1)
    two = cr.Classifier(one, pick=lambda z: torch.cat([-z / 2, z / 2], 1))
    first, second = (cr.Judge.fit(clf, KNOWN, gamma=30.0)(NEW) for clf in (one, two))
    torch.testing.assert_close(first.signals["confidence"], second.signals["confidence"])
    torch.testing.assert_close(first.signals["energy"], second.signals["energy"])
    assert first.verdicts == second.verdicts


def table(count, seed):
    """Two classes in columns of unlike units."""
    random = np.random.default_rng(seed)
    y = random.integers(0, 2, count)
    x = random.normal(size=(count, 4)) + 2 * y[:, None] * np.array([1, 0.5, 0, 1])
    return x * np.array([1.0, 1000.0, 0.01, 5.0]), y


SKLEARN = {
    "logistic": LogisticRegression,
    "svc": SVC,
    "mlp": lambda: MLPClassifier((8,), max_iter=800, random_state=0),
}


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", SKLEARN)
def test_fitted_models_of_scikit_learn_are_judged_as_they_are(name, tmp_path):
    x, y = table(400, 0)
    model = make_pipeline(StandardScaler(), SKLEARN[name]()).fit(x[:100], y[:100])
    judge = cr.Judge.fit(model, x[100:300], y[100:300], false_alarms=0.02)
    far = x[:5] * np.array([1, 100.0, 1, 1])  # a column in another unit
    found = check(judge, x[300:], far + np.array([0, 1e5, 0, 0]), model.predict(x[300:]))
    assert found.accuracy(y[300:]) > (model.predict(x[300:]) == y[300:]).mean() - 0.02
    assert "column 1" in judge(far + np.array([0, 1e6, 0, 0])).reasons[0]
    judge.save(tmp_path / "judge")
    again = cr.Judge.load(tmp_path / "judge", model)(x[300:])
    assert torch.equal(again.trust, found.trust)
    # units of columns also from what can be read only once
    parts = (x[k : k + 50] for k in range(100, 300, 50))
    one, other = (cr.Judge.fit(model, data, profile="never") for data in (x[100:300], parts))
    torch.testing.assert_close(one(x[300:]).trust, other(x[300:]).trust, rtol=1e-6, atol=1e-6)


def test_tables_name_the_column_that_lies_outside():
    x, y = table(300, 1)
    names = ["age", "income", "share", "height"]
    model = make_pipeline(StandardScaler(), LogisticRegression())
    frame = pd.DataFrame(x, columns=names)
    model.fit(frame[:100], y[:100])
    judge = cr.Judge.fit(model, frame[100:], false_alarms=0.02)
    new = frame[:6].copy()
    new.loc[2, "income"] = 1e7
    new.loc[3, "age"] = None
    found = judge(new[["height", "share", "income", "age"]])  # by name, in any order
    assert found.reasons[2].startswith("outlier: income, 1e+07, lies outside")
    assert found.verdicts[3] is Verdict.UNUSABLE
    assert len(found.profile_of(2)) == 1  # a table is a single batch


def test_nets_of_skorch_are_judged():
    skorch = pytest.importorskip("skorch")
    x, y = table(300, 2)
    x = (x / np.array([1.0, 1000.0, 0.01, 5.0])).astype(np.float32)
    net = skorch.NeuralNetClassifier(
        nn.Linear(4, 2), criterion=nn.CrossEntropyLoss, max_epochs=5, lr=0.2, train_split=None,
        verbose=0,
    )  # fmt: skip
    net.fit(x[:100], y[:100])
    judge = cr.Judge.fit(net, x[100:250], false_alarms=0.02)
    check(judge, x[250:], 100 * x[:4], net.predict(x[250:]))


def test_texts_are_judged_by_their_embeddings():
    tf = pytest.importorskip("transformers")
    tf.logging.set_verbosity_error()
    config = tf.DistilBertConfig(dim=8, n_heads=2, n_layers=1, hidden_dim=8, vocab_size=40,
                                 id2label={0: "no", 1: "maybe", 2: "yes"})  # fmt: skip
    model = tf.DistilBertForSequenceClassification(config).double().eval()

    def texts(count, seed):
        tokens = torch.randint(2, 40, (count, 5), generator=models.generator(seed))
        return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}

    judge = cr.Judge.fit(model, texts(120, 0), profile="doubtful")
    new = texts(12, 1)
    found = judge(new)
    assert found.names == ("no", "maybe", "yes")
    assert {"features", "shift"} <= found.signals.keys()
    assert "inputs" not in found.signals  # what moves are embeddings
    with torch.no_grad():
        assert found.predicted.tolist() == model(**new).logits.argmax(1).tolist()
    assert found.profile is not None  # a mapping is a single batch
    several = tf.DistilBertForSequenceClassification(
        tf.DistilBertConfig(**{**config.to_dict(), "problem_type": "multi_label_classification"})
    )
    with pytest.raises(cr.errors.InvalidArgumentError, match="one Judge per label"):
        cr.Judge.fit(several.double().eval(), texts(120, 0), np.ones((120, 3)))


def test_nodes_of_a_graph_are_judged():
    geometric = pytest.importorskip("torch_geometric")
    from torch_geometric.nn import GCNConv

    class Graph(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = GCNConv(4, 8), GCNConv(8, 3)

        def forward(self, x, edges):
            return self.last(self.first(x, edges).tanh(), edges)

    clf = cr.Classifier(Graph().double().eval())
    g = models.generator(0)
    data = geometric.data.Data(
        x=torch.randn(160, 4, generator=g, dtype=torch.float64),
        edge_index=torch.randint(0, 160, (2, 300), generator=g),
    )
    known, new = cr.graph_nodes(clf, data, range(130)), cr.graph_nodes(clf, data, range(130, 160))
    judge = cr.Judge.fit(clf, known, profile="doubtful")
    found = judge(new)
    with torch.no_grad():
        expected = clf.net(data.x, data.edge_index)[130:].argmax(1)
    assert found.predicted.tolist() == expected.tolist()
    assert found.verdicts.count(Verdict.TRUST) > 15
    assert "shift" in found.signals
