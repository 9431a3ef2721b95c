"""Language models, groups of agents and benchmarks. This app imports nothing of runs."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.urls import reverse
from django.utils import timezone

from hacrl_web.accounts.audit.audit_log import AuditedQuerySet, audited
from hacrl_web.accounts.roles.visibility import ProjectRow, ProjectRowQuerySet, RowT
from workers.contract.spec.agent import AgentSpec
from workers.contract.spec.judge import JUDGE_KINDS, JudgeFile, JudgeSettings
from workers.contract.spec.reward_function import VERSION_DIGITS, FunctionFile
from workers.contract.verifier_kinds import AUDIT_METHODS, RESPONSE_EXTRACTIONS, RULES

MAX_AGENTS = 8
# The kinds of verifiers, each with its rule in one line.
VERIFIERS: dict[str, str] = {kind: f"{kind}: {rules.line}" for kind, rules in RULES.items()}
# The settings of an agent, all of AgentSpec but its name and model; Agent.settings holds those without a column.
AGENT_FIELDS = tuple(name for name in AgentSpec.model_fields if name not in ("name", "model", "revision"))
AGENT_SETTINGS = tuple(name for name in AGENT_FIELDS if name not in ("learning_rate", "prompt_format"))
# Okabe and Ito's colours, which colour-blind readers can distinguish; an agent has the same colour on every page.
AGENT_COLORS = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#000000")


@audited("hub_name", secrets=("ciphertext",))
class HubToken(models.Model):
    """The Hugging Face token of a user or of a project, encrypted (registry/hub_tokens)."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, null=True, blank=True, related_name="hub_token"
    )
    project = models.OneToOneField(
        "accounts.Project", on_delete=models.CASCADE, null=True, blank=True, related_name="hub_token"
    )
    ciphertext = models.TextField()
    hub_name = models.CharField(max_length=200, blank=True)  # of the token's account, as the hub said
    problem = models.CharField(max_length=300, blank=True)  # why the last check did not find it
    set_at = models.DateTimeField(default=timezone.now)
    checked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    objects = AuditedQuerySet["HubToken"].as_manager()

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(user=None, project__isnull=False) | Q(user__isnull=False, project=None),
                name="hub_token_of_one_owner",
            )
        ]

    def __str__(self) -> str:
        return f"of project {self.project}" if self.project_id else f"of {self.user}"


class RegistryRow(ProjectRow):
    """A row of a project with a name and a page."""

    page: ClassVar[str]

    name = models.CharField(max_length=80)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        abstract = True
        ordering = ["-created_at", "-pk"]

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse(self.page, args=[self.pk])


class VersionQuerySet(ProjectRowQuerySet[RowT]):
    """Rows of which an edit is a newer copy."""

    def newest_versions(self) -> VersionQuerySet[RowT]:
        """The rows that have no newer version."""
        return self.filter(edits=None)


class VersionedRow(RegistryRow):
    """A row that stays as it is, since runs refer to it: an edit is a new row of the same project."""

    edit_of = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, blank=True, related_name="edits")

    class Meta(RegistryRow.Meta):
        abstract = True


@audited("name", "kind", "location", "revision")
class LanguageModel(RegistryRow):
    """A model that agents start from, with the facts of its inspection."""

    class Kind(models.TextChoices):
        LOCAL = "local", "local folder"
        HUB = "hub", "hub id"

    section, page = "models", "registry:model_detail"

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="language_models")
    kind = models.CharField(max_length=8, choices=Kind.choices, default=Kind.LOCAL)
    location = models.CharField(max_length=1000)  # resolved folder, or hub id
    revision = models.CharField(max_length=200, blank=True)
    architecture = models.CharField(max_length=200, blank=True)
    num_parameters = models.BigIntegerField(null=True, blank=True)
    vocab_size = models.BigIntegerField(null=True, blank=True)
    tokenizer_hash = models.CharField(max_length=128, blank=True)
    has_chat_template = models.BooleanField(default=False)
    context_length = models.BigIntegerField(null=True, blank=True)
    facts = models.JSONField(default=dict)  # all other facts of the inspection, and its checks
    # Of a model that a run trained: run, run_name, step, agent, algorithm, seed, started_from.
    provenance = models.JSONField(default=dict, blank=True)

    objects = ProjectRowQuerySet["LanguageModel"].as_manager()

    class Meta(RegistryRow.Meta):
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="language_model_name_per_project")]

    @property
    def has_thinking_switch(self) -> bool:
        """Whether the chat template can be told to think or not; of a model registered before, nothing is known."""
        return self.facts.get("has_thinking_switch") is True

    @property
    def refuses_system(self) -> bool:
        """Whether its inspection showed that the chat template takes no system message."""
        return self.facts.get("takes_system") is False


@audited("name")
class AgentGroup(VersionedRow):
    """Agents that learn together."""

    section, page = "groups", "registry:group_detail"

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="agent_groups")

    objects = VersionQuerySet["AgentGroup"].as_manager()

    class Meta(VersionedRow.Meta):
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="agent_group_name_per_project")]

    def agent_pairs(self) -> list[tuple[Agent, Agent]]:
        """Each unordered pair of agents once, in the order of their positions."""
        return list(combinations(self.agents.select_related("model"), 2))

    def pair_at(self, first: int, second: int) -> tuple[Agent, Agent] | None:
        """The agents at these positions, the lower one first; None if the group has no such pair."""
        return next(
            (pair for pair in self.agent_pairs() if (pair[0].position, pair[1].position) == (first, second)), None
        )


@audited("group", "model", "name", "learning_rate", "settings", project="group.project_id")
class Agent(models.Model):
    """One learner of a group: its model and its own settings."""

    class PromptFormat(models.TextChoices):
        AUTO = "auto", "auto: chat where the tokenizer has a template"
        CHAT = "chat", "chat template"
        PLAIN = "plain", "plain text"

    group = models.ForeignKey(AgentGroup, on_delete=models.CASCADE, related_name="agents")
    model = models.ForeignKey(LanguageModel, on_delete=models.PROTECT, related_name="agents")
    name = models.CharField(max_length=80)
    position = models.PositiveSmallIntegerField()
    learning_rate = models.FloatField(null=True, blank=True)
    prompt_format = models.CharField(max_length=8, choices=PromptFormat.choices, default=PromptFormat.AUTO)
    # Further fields of AgentSpec that differ from its defaults, checked by it when written.
    settings: Any = models.JSONField(default=dict, blank=True)

    objects = AuditedQuerySet["Agent"].as_manager()

    class Meta:
        ordering = ["position"]
        constraints = [
            models.UniqueConstraint(fields=["group", "name"], name="agent_name_per_group"),
            models.UniqueConstraint(fields=["group", "position"], name="agent_position_per_group"),
        ]

    def __str__(self) -> str:
        return self.name

    def setting(self, name: str) -> Any:
        """The value of one of AGENT_FIELDS: this agent's own, or the default."""
        if name not in AGENT_SETTINGS:
            return getattr(self, name)
        return self.settings.get(name, AgentSpec.model_fields[name].default)

    @property
    def color(self) -> str:
        return AGENT_COLORS[self.position % len(AGENT_COLORS)]


@audited("name", "source", "verifier", "extraction", "held_out_fraction")
class Benchmark(VersionedRow):
    """Questions with reference answers: a training set and a held-out set."""

    section, page = "benchmarks", "registry:benchmark_detail"

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="benchmarks")
    train_path = models.CharField(max_length=1000)
    eval_path = models.CharField(max_length=1000, blank=True)  # empty: a share of the training file is held out
    held_out_fraction = models.FloatField(default=0.1)
    question_field = models.CharField(max_length=120, default="question")
    answer_field = models.CharField(max_length=120, default="answer")
    prompt_template = models.TextField(default="{question}")  # around every question, inside an agent's own
    system_prompt = models.TextField(default="", blank=True)
    verifier = models.CharField(max_length=16, default="math")  # a key of workers.contract.verifier_kinds.RULES
    tolerance = models.FloatField(null=True, blank=True)  # relative; of the numeric verifier, empty: its default
    extraction = models.CharField(max_length=16, default="strict")  # a key of verifier_kinds.RESPONSE_EXTRACTIONS
    reward_function = models.ForeignKey(  # of the verifier function
        "RewardFunction", on_delete=models.PROTECT, null=True, blank=True, related_name="benchmarks"
    )
    judge = models.ForeignKey(  # of the verifier judge
        "Judge", on_delete=models.PROTECT, null=True, blank=True, related_name="benchmarks"
    )
    num_train = models.PositiveIntegerField(default=0)
    num_held_out = models.PositiveIntegerField(default=0)
    sample = models.JSONField(default=list)  # the first questions, for the preview
    facts = models.JSONField(default=dict)  # other counts: left-out lines, slices, near-duplicates, mapping
    source = models.CharField(max_length=1000, blank=True)  # hub id and commit, or names of files
    questions_sha = models.CharField(max_length=64, blank=True)  # SHA-256 over the canonical files, held-out one first

    objects = VersionQuerySet["Benchmark"].as_manager()

    class Meta(VersionedRow.Meta):
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="benchmark_name_per_project")]

    @property
    def verifier_rule(self) -> str:
        """The verifier, its rule and what it reads, in one line."""
        rule = VERIFIERS.get(self.verifier, self.verifier)
        if self.reward_function is not None:
            rule = f"function: {self.reward_function.name}, version {self.reward_function.version}"
        if self.judge is not None:
            rule = f"judge: {self.judge.name}, version {self.judge.version}: a model's opinion, not verified"
        return rule if self.extraction == "strict" else f"{rule}; reads {RESPONSE_EXTRACTIONS['flexible']}"

    @property
    def audit(self) -> str:
        """The reward audit compares its rewards with this; empty for a rule, which always judges alike."""
        return AUDIT_METHODS.get(self.verifier, "")

    @property
    def paths(self) -> list[str]:
        """The question files, the training one first."""
        return [path for path in (self.train_path, self.eval_path) if path]


class Versioned(models.Model):
    """The content of a file, by its SHA-256."""

    sha256 = models.CharField(max_length=64)

    class Meta:
        abstract = True

    @property
    def version(self) -> str:
        return self.sha256[:VERSION_DIGITS]


class RewardSource(Versioned, RegistryRow):
    """A row gives rewards by a file that trainers read (`path`), and has its newest version.

    content: the column of what the file holds.  verifier: of the benchmarks that it verifies.
    """

    content: ClassVar[str]
    verifier: ClassVar[str]

    class Meta(RegistryRow.Meta):
        abstract = True


class SourceVersion(Versioned):
    """One version of such a file."""

    author = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        abstract = True
        ordering = ["-created_at", "-pk"]


@audited("name", "sha256")
class RewardFunction(RewardSource):
    """A Python function that gives rewards; `text` is its newest version."""

    section, page = "functions", "registry:function_detail"  # of reward-functions/<id>
    content, verifier = "text", "function"

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="reward_functions")
    text = models.TextField()

    objects = ProjectRowQuerySet["RewardFunction"].as_manager()

    class Meta(RewardSource.Meta):
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="reward_function_name_per_project")]

    @property
    def file(self) -> FunctionFile:
        return FunctionFile(self.name, self.text)

    @property
    def path(self) -> Path:
        return Path(settings.REWARD_FUNCTIONS_DIR) / str(self.pk) / f"{self.name}.py"

    @property
    def uses_network(self) -> bool:
        """Whether its newest version asks for the network: what it rewards cannot be repeated exactly."""
        return self.file.uses_network


class RewardFunctionVersion(SourceVersion):
    """One text of a reward function."""

    function = models.ForeignKey(RewardFunction, on_delete=models.CASCADE, related_name="versions")
    text = models.TextField()

    class Meta(SourceVersion.Meta):
        constraints = [models.UniqueConstraint(fields=["function", "sha256"], name="reward_function_version_once")]


@audited("name", "sha256", "settings", "key_set_at")
class Judge(RewardSource):
    """A model that gives rewards. settings: those of JudgeSettings, the newest version; ciphertext: of its key."""

    section, page = "judges", "registry:judge_detail"
    content, verifier = "settings", "judge"

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="judges")
    settings: Any = models.JSONField()
    ciphertext = models.TextField(blank=True, default="")
    key_set_at = models.DateTimeField(null=True, blank=True)

    objects = ProjectRowQuerySet["Judge"].as_manager()

    class Meta(RewardSource.Meta):
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="judge_name_per_project")]

    @property
    def file(self) -> JudgeFile:
        return JudgeFile(self.name, JudgeSettings.model_validate(self.settings))

    @property
    def path(self) -> Path:
        return Path(settings.JUDGES_DIR) / str(self.pk) / f"{self.name}.json"

    @property
    def kind_in_words(self) -> str:
        return JUDGE_KINDS[self.settings["kind"]]

    @property
    def has_key(self) -> bool:
        return bool(self.ciphertext)

    @property
    def secret_name(self) -> str:
        return f"key of judge {self.pk}"


class JudgeVersion(SourceVersion):
    """The settings of one version of a judge."""

    judge = models.ForeignKey(Judge, on_delete=models.CASCADE, related_name="versions")
    settings: Any = models.JSONField()

    class Meta(SourceVersion.Meta):
        constraints = [models.UniqueConstraint(fields=["judge", "sha256"], name="judge_version_once")]


class PairInspection(models.Model):
    """Facts that two models share, measured once, since a registered model does not change."""

    model_a = models.ForeignKey(LanguageModel, on_delete=models.CASCADE, related_name="+")
    model_b = models.ForeignKey(LanguageModel, on_delete=models.CASCADE, related_name="+")
    facts: Any = models.JSONField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["model_a", "model_b"], name="pair_inspected_once")]
