"""The registry's pages over the real inspection: model folders are opened by a child process with limits."""

import json
import shutil

import pytest

from hacrl_web.registry.models import LanguageModel, PairInspection
from tests.support.marks import in_full
from tests.support.web.registry_help import field_error, make_user, written_rows

pytest.importorskip("torch", reason="needs the train extra: pip install '.[train]'")
from tests.support.workers.tiny import make_pair

pytestmark = pytest.mark.django_db


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


def edit_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


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


def test_folder_without_safetensors_is_refused(client, root):
    (root / "qwen" / "model.safetensors").unlink()
    response = register(client, root / "qwen")
    assert response.status_code == 422
    assert "safetensors" in field_error(response, "location")
    page = response.content.decode()
    assert page.count('data-check="fail"') == 1
    assert page.count('data-check="pass"') >= 2, "the checks before it are shown too"
    assert written_rows() == 0


def _own_code_deep(folder):
    edit_config(folder, sub={"deep": [{"auto_map": {"AutoConfig": "evil.Config"}}]})


def _renamed_pickle(folder):
    (folder / "model.safetensors").write_bytes(b"\x80\x04" + bytes(500))


def _no_tokenizer(folder):
    for path in folder.glob("tokenizer*"):
        path.unlink()


@pytest.mark.slow
@pytest.mark.parametrize("harm", [_renamed_pickle, *in_full(_own_code_deep, _no_tokenizer)])
def test_harmful_folder_is_refused_beside_its_field(client, root, harm):
    harm(root / "qwen")
    response = register(client, root / "qwen")
    assert response.status_code == 422
    message = field_error(response, "location")
    assert "ended without an answer" not in message, "the inspection says what is wrong"
    assert written_rows() == 0
