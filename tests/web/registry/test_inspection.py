"""The registry's pages over the real inspection: model folders are opened by a child process with limits."""

import shutil

import pytest

from hacrl_web.registry.models import LanguageModel, PairInspection
from tests.support.web.registry_help import make_user

pytest.importorskip("torch", reason="needs the train extra: pip install '.[train]'")
from tests.support.workers.tiny import make_pair

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("forked_children")]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two small models of different family and tokenizer, made once."""
    root = tmp_path_factory.mktemp("models")
    make_pair(root)
    return root


@pytest.fixture
def root(folders, tmp_path, settings, client):
    """A copy that a test may break, and a user who is logged in."""
    root = tmp_path / "models"
    shutil.copytree(folders, root)
    settings.MODEL_ROOTS = [root]
    client.force_login(make_user("ada"))
    return root


def register(client, folder):
    return client.post("/models/new", {"kind": "local", "location": str(folder)})


@pytest.mark.slow
def test_two_models_are_registered_grouped_and_compared(client, root):
    for name in ("qwen", "llama"):
        assert register(client, root / name).status_code == 302
    qwen, llama = LanguageModel.objects.order_by("pk")
    assert (qwen.architecture, llama.architecture) == ("Qwen3ForCausalLM", "LlamaForCausalLM")
    assert qwen.num_parameters > 1000
    assert qwen.tokenizer_hash != llama.tokenizer_hash
    assert (qwen.vocab_size, llama.vocab_size) == (18, 21)
    assert (qwen.context_length, qwen.has_chat_template) == (64, False)
    page = client.get(f"/models/{qwen.pk}").content.decode()
    assert page.count('data-check="pass"') == len(qwen.facts["checks"]) >= 5
    response = client.post("/groups/new", {"name": "g", "agents-0-model": qwen.pk, "agents-1-model": llama.pk})
    row = client.get(f"{response['Location']}/pairs/0/1", headers={"HX-Request": "true"}).content.decode()
    assert "Heterogeneous model" in row
    assert f"{100 * 18 / 21:.1f} %" in row, "18 of 21 pieces are shared"
    assert PairInspection.objects.get().facts["kind"] == "model"
