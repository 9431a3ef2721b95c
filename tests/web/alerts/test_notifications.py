"""Whom to tell what: the outbox, e-mail, and webhooks that go to no address that is not allowed."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.core import mail
from django.utils import timezone

from hacrl_web.alerts.models import Alert, Delivery, DeliveryState, NotificationSettings
from hacrl_web.alerts.notifications import webhook
from hacrl_web.alerts.notifications.notify import MAX_PER_HOUR, Notifier
from hacrl_web.alerts.notifications.send import send_due
from hacrl_web.runs.models import Run, State
from tests.support.http_server import Handler, http_server
from tests.support.web.factories import make_training_run, make_user
from workers.contract.allowed_address import AddressRefused

pytestmark = pytest.mark.django_db


class Receiver:
    """What a web server on loopback was sent, and what it answers. `pause_s`: between its headers and its body."""

    def __init__(self) -> None:
        self.bodies: list[dict] = []
        self.headers: list[dict] = []
        self.status, self.location, self.answer, self.delay_s, self.pause_s = 204, "", b"", 0.0, 0.0
        self.ended = threading.Event()
        self.port = 0


@pytest.fixture
def receiver(settings) -> Iterator[Receiver]:
    made = Receiver()

    class Answers(Handler):
        def do_POST(self) -> None:
            made.headers.append(dict(self.headers))
            made.bodies.append(json.loads(self.body()))
            made.ended.wait(made.delay_s)
            self.send_response(made.status)
            if made.location:
                self.send_header("Location", made.location)
            self.end_headers()
            made.ended.wait(made.pause_s)
            with contextlib.suppress(OSError):
                self.wfile.write(made.answer)

        do_GET = do_POST

    settings.PUBLIC_URL = "https://hacrl.test"
    with http_server(Answers) as address:
        made.port = int(address.rpartition(":")[2])
        settings.WEBHOOK_ALLOW = [f"hooks.test:{made.port}", "127.0.0.1"]
        yield made
        made.ended.set()


@pytest.fixture
def names(monkeypatch):
    """A name server: what it is told, and nothing of the real one."""
    known = {"hooks.test": ["127.0.0.1"]}

    def find(host, port, **_):
        if host not in known:
            raise socket.gaierror(f"no {host}")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in known[host]]

    monkeypatch.setattr("workers.contract.allowed_address.socket.getaddrinfo", find)
    return known


@pytest.fixture
def run(user):
    return make_training_run(user, name="swan")


def wish(user, **values) -> NotificationSettings:
    made = NotificationSettings.objects.update_or_create(user=user, defaults=values)[0]
    NotificationSettings.objects.filter(pk=made.pk).update(saved_at=timezone.now() - timedelta(days=1))
    return made


def raise_alert(run: Run, seq: int = 1, **changes) -> Alert:
    values = {"kind": "cross_clip", "agent": "A", "source": "B", "attempt": 1, "number": 0.9, "text": "90 % lost."}
    values |= {"raised_seq": seq, "raised_step": 3, "raised_at": timezone.now()}
    return Alert.objects.create(run=run, **{**values, **changes})


def outbox(user) -> list[tuple[str, str]]:
    return list(Delivery.objects.filter(user=user).order_by("pk").values_list("channel", "subject"))


def test_nobody_is_told_anything_unless_asked(run, user):
    raise_alert(run)
    assert Notifier().tick() == 0
    NotificationSettings.objects.create(user=user, email="a@b.test", webhook_url="https://hooks.test/")
    assert Notifier().tick() == 0
    assert not Delivery.objects.exists()


def test_alert_is_mailed_once_to_the_owner_of_the_run(run, user):
    wish(user, email_enabled=True, email="owner@b.test")
    wish(make_user(is_staff=True), email_enabled=True, email="staff@b.test")
    raise_alert(run)
    for _ in range(3):
        Notifier().tick()
        send_due()
    (sent,) = mail.outbox
    assert (sent.to, sent.subject) == (["owner@b.test"], "Delta trap, at step 3 of swan")
    assert sent.body.splitlines()[1] == "90 % lost."
    assert sent.body.splitlines()[2].startswith("Clone the run with the recommended rule, which has no clip band; or")
    delivery = Delivery.objects.get()
    assert (delivery.state, delivery.tries, delivery.reason) == ("sent", 1, "accepted by the mail server")


@pytest.mark.parametrize("way_out", ["of the project", "of the installation"])
def test_who_is_out_is_told_nothing_more(run, user, way_out):
    wish(user, email_enabled=True, email="owner@b.test")
    if way_out == "of the project":
        user.memberships.all().delete()
    else:
        type(user).objects.filter(pk=user.pk).update(is_active=False)
    raise_alert(run)
    assert run.transition_to(State.FAILED, reason="no memory")
    assert Notifier().tick() == 0


def test_states_are_told_as_wished(run, user):
    wish(user, email_enabled=True, email="a@b.test", on_completed=True, on_lost=False)
    notifier = Notifier()
    notifier.tick()
    run.transition_to(State.LOST, reason="its host is gone", attempt=1)
    assert notifier.tick() == 0
    run.transition_to(State.FAILED, reason="interrupted 4 times", attempt=1)
    assert (notifier.tick(), notifier.tick()) == (1, 0)
    assert outbox(user) == [("email", "failed: swan")]
    assert Delivery.objects.get().body["reason"] == "interrupted 4 times"


@pytest.mark.parametrize(
    ("reason", "told"), [("the verifier fails: 40 of 40", ["paused: swan"]), ("paused by ada: lunch", [])]
)
def test_run_that_pauses_by_itself_is_told(run, user, reason, told):
    wish(user, email_enabled=True, email="a@b.test")
    run.transition_to(State.PAUSED, reason=reason, attempt=1)
    Notifier().tick()
    assert [subject for _, subject in outbox(user)] == told


def test_clearing_is_told_only_where_wished_and_not_at_the_runs_end(run, user):
    wish(user, email_enabled=True, email="a@b.test", on_alert=False, on_cleared=True)
    raise_alert(run, cleared_at=timezone.now(), cleared_step=9, cleared_reason="0.5: at most 0.6 for 3 steps")
    raise_alert(run, seq=2, cleared_at=timezone.now(), cleared_step=9, cleared_reason="the run ended: completed")
    Notifier().tick()
    assert outbox(user) == [("email", "Cleared: Delta trap, at step 9 of swan")]


def test_what_is_old_or_was_before_the_wish_is_not_told(run, user):
    made = wish(user, email_enabled=True, email="a@b.test")
    raise_alert(run, raised_at=timezone.now() - timedelta(hours=2))
    assert Notifier().tick() == 0
    raise_alert(run, seq=2, raised_at=timezone.now() - timedelta(minutes=5))
    NotificationSettings.objects.filter(pk=made.pk).update(saved_at=timezone.now() - timedelta(minutes=1))
    assert Notifier().tick() == 0


def test_flood_is_left_out_and_said(run, user):
    wish(user, email_enabled=True, email="a@b.test")
    for seq in range(MAX_PER_HOUR + 2):
        raise_alert(run, seq=seq)
    Notifier().tick()
    states = list(Delivery.objects.order_by("pk").values_list("state", flat=True))
    assert states == ["waiting"] * MAX_PER_HOUR + ["skipped"] * 2
    assert "more than 60" in Delivery.objects.filter(state="skipped").first().reason


def test_webhook_gets_json(receiver, names, run, user):
    wish(user, webhook_enabled=True, webhook_url=f"http://hooks.test:{receiver.port}/in?x=1")
    alert = raise_alert(run)
    Notifier().tick()
    assert send_due() == 1
    (body,) = receiver.bodies
    assert (body["event"], body["alert"]["id"], body["alert"]["number"]) == ("alert.raised", alert.pk, 0.9)
    assert body["run"] == {"id": str(run.pk), "name": "swan", "url": f"https://hacrl.test/runs/{run.pk}"}
    assert body["text"].startswith("Delta trap, at step 3 of swan\n90 % lost.\n")
    assert receiver.headers[0]["Host"] == f"hooks.test:{receiver.port}"
    assert (Delivery.objects.get().state, Delivery.objects.get().reason) == ("sent", "answered 204")
    assert send_due() == 0


def queued(user, url: str) -> Delivery:
    """A message that waits, to an address that was saved when it was still allowed."""
    wish(user, webhook_enabled=True, webhook_url=url)
    return Delivery.objects.create(
        user=user, key=f"k{Delivery.objects.count()}", channel="webhook", target=url, subject="s", body={"text": "t"}
    )


def outcome(delivery: Delivery) -> tuple[str, str]:
    send_due()
    delivery.refresh_from_db()
    return delivery.state, delivery.reason


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.test/", "http://169.254.169.254/latest/meta-data", "http://localhost/", "http://[::1]/",
        "http://2130706433/", "http://0x7f.1/", "http://127.0.0.2/", "ftp://hooks.test/", "file:///etc/passwd",
        "http://hooks.test.evil.test/", "http://evil.test/hooks.test", "http://hooks.test@evil.test/",
        "http://user:pw@hooks.test/", "http://hooks.test\\@evil.test/", "http://hooks.test:99999/", "http:///x",
        "http://hooks.test/\r\nX: y", "http://hooks.test:22/", "http://ⓗooks.test/", "gopher://127.0.0.1/", "", "x",
        "http://hooks.test/\U0001f600",
    ],
)  # fmt: skip
def test_address_that_is_not_allowed_is_refused_by_form_and_sender(settings, web, user, receiver, names, url):
    settings.WEBHOOK_ALLOW = ["hooks.test", "127.0.0.1"]
    answer = web.post("/notifications", {"webhook_enabled": "on", "webhook_url": url})
    assert answer.status_code == 422
    assert "field-error" in answer.content.decode()
    assert not NotificationSettings.objects.exists()
    with pytest.raises(AddressRefused):
        webhook.check_url(url)
    if url:
        assert outcome(queued(user, url))[0] == "failed"
    assert receiver.bodies == []


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.9.9.9", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
        "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1%eth0", "fc00::1", "ff02::1", "::ffff:127.0.0.1",
        "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "2001:0:7f00:1::", "::127.0.0.1", "::ffff:0:127.0.0.1",
        "fec0::1",
    ],
)  # fmt: skip
def test_allowed_name_with_an_address_that_is_not_public_is_refused(settings, receiver, names, user, address):
    settings.WEBHOOK_ALLOW = [f"hooks.test:{receiver.port}"]
    names["hooks.test"] = [address]
    state, reason = outcome(queued(user, f"http://hooks.test:{receiver.port}/"))
    assert (state, "not public" in reason) == ("failed", True), reason
    assert receiver.bodies == []


def test_one_bad_address_among_good_ones_is_enough_to_refuse(settings, names):
    settings.WEBHOOK_ALLOW = ["hooks.test"]
    names["hooks.test"] = ["93.184.215.14", "10.0.0.1"]
    with pytest.raises(AddressRefused, match=r"10\.0\.0\.1"):
        webhook.resolve("hooks.test", 443)
    names["hooks.test"] = ["93.184.215.14"]
    assert webhook.resolve("hooks.test", 443) == "93.184.215.14"


def test_second_answer_of_the_name_server_changes_nothing(settings, receiver, monkeypatch):
    """The name is asked for once, and the connection goes to what was checked."""
    asked = []

    def find(host, port, **_):
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1" if len(asked) == 1 else "10.0.0.1", port))]

    monkeypatch.setattr("workers.contract.allowed_address.socket.getaddrinfo", find)
    assert webhook.post(f"http://hooks.test:{receiver.port}/", {"text": "t"}) == 204
    assert asked.count("hooks.test") == 1


def test_private_address_is_asked_where_it_is_on_the_list_itself(settings, receiver, names):
    settings.WEBHOOK_ALLOW = ["hooks.test:1", f"127.0.0.1:{receiver.port}"]
    assert webhook.post(f"http://127.0.0.1:{receiver.port}/", {}, find=lambda host, port: host) == 204
    settings.WEBHOOK_ALLOW = ["127.0.0.0/8", f"hooks.test:{receiver.port}"]
    assert webhook.post(f"http://hooks.test:{receiver.port}/", {}) == 204


def test_private_address_is_listed_for_one_port_only(settings, receiver, names):
    settings.WEBHOOK_ALLOW = ["127.0.0.1:1", f"hooks.test:{receiver.port}"]
    with pytest.raises(AddressRefused, match="not public"):
        webhook.post(f"http://hooks.test:{receiver.port}/", {})
    assert receiver.bodies == []


def test_address_with_its_secret_is_not_logged(receiver, names, caplog):
    caplog.set_level("INFO")
    assert webhook.post(f"http://hooks.test:{receiver.port}/services/T0/s3cret", {}) == 204
    assert "s3cret" not in caplog.text


def test_redirect_is_not_followed(receiver, names, user):
    receiver.status, receiver.location = 302, f"http://127.0.0.1:{receiver.port}/elsewhere"
    assert outcome(queued(user, f"http://hooks.test:{receiver.port}/")) == (
        "failed",
        "answered 302: redirects are not followed",
    )
    assert len(receiver.bodies) == 1


def test_proxy_of_the_environment_is_not_asked(receiver, names, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert webhook.post(f"http://hooks.test:{receiver.port}/", {}) == 204


def test_slow_host_is_given_up(receiver, names, user, monkeypatch):
    monkeypatch.setattr(webhook, "TOTAL_S", 0.3)
    receiver.delay_s = 5
    delivery = queued(user, f"http://hooks.test:{receiver.port}/")
    assert outcome(delivery) == ("waiting", "no answer within 0.3 s")
    assert delivery.next_try_at > timezone.now()


def test_answer_whose_body_does_not_come_is_taken_by_its_status(receiver, names, user, monkeypatch):
    """It was received: sent again, it would be told twice."""
    monkeypatch.setattr(webhook, "TOTAL_S", 2.0)
    receiver.status, receiver.pause_s = 200, 20.0
    assert outcome(queued(user, f"http://hooks.test:{receiver.port}/")) == ("sent", "answered 200")


def test_large_answer_is_not_read_to_its_end(receiver, names, monkeypatch):
    receiver.status, receiver.answer = 200, b"x" * 20_000_000
    read = []
    from hacrl_web.alerts.notifications.webhook import httpx

    taken = httpx.Response.aiter_raw

    async def counted(self, *arguments):
        async for part in taken(self, *arguments):
            read.append(len(part))
            yield part

    monkeypatch.setattr(httpx.Response, "aiter_raw", counted)
    assert webhook.post(f"http://hooks.test:{receiver.port}/", {}) == 200
    assert sum(read) < 1_000_000


def test_failed_sending_is_tried_again_with_growing_pauses_and_then_given_up(receiver, names, user):
    receiver.status = 503
    delivery = queued(user, f"http://hooks.test:{receiver.port}/")
    waits = []
    for _ in range(5):
        assert outcome(delivery) == ("waiting", "answered 503")
        waits.append(round((delivery.next_try_at - timezone.now()).total_seconds(), -1))
        assert send_due() == 0  # not before it is due
        Delivery.objects.update(next_try_at=timezone.now())
    assert waits == [10, 60, 300, 1800, 7200]
    assert outcome(delivery) == ("failed", "answered 503 (6 tries)")
    assert len(receiver.bodies) == 6


def test_refusal_of_the_receiver_is_final(receiver, names, user):
    receiver.status = 410
    assert outcome(queued(user, f"http://hooks.test:{receiver.port}/")) == ("failed", "answered 410")


def test_mail_server_that_is_away_is_tried_again(user, run, monkeypatch):
    wish(user, email_enabled=True, email="a@b.test")
    raise_alert(run)
    Notifier().tick()
    monkeypatch.setattr("django.core.mail.EmailMessage.send", lambda *_: (_ for _ in ()).throw(OSError("refused")))
    assert outcome(Delivery.objects.get()) == ("waiting", "OSError: refused")


def test_message_is_not_sent_once_its_channel_is_turned_off(receiver, names, user):
    delivery = queued(user, f"http://hooks.test:{receiver.port}/")
    NotificationSettings.objects.update(webhook_enabled=False)
    assert outcome(delivery) == ("failed", "webhook was turned off")
    assert receiver.bodies == []


def test_message_goes_where_the_user_wants_it_now(receiver, names, user):
    """The address was changed while the message waited."""
    delivery = queued(user, "http://hooks.test:1/old")
    new = f"http://hooks.test:{receiver.port}/new"
    NotificationSettings.objects.update(webhook_url=new)
    assert outcome(delivery) == ("sent", "answered 204")
    assert len(receiver.bodies) == 1
    delivery.refresh_from_db()
    assert delivery.target == new


def test_two_senders_send_once(receiver, names, user, monkeypatch):
    delivery = queued(user, f"http://hooks.test:{receiver.port}/")
    sending = webhook.post

    def meanwhile(*arguments):
        assert send_due() == 0  # the other one, while the first waits for its answer
        return sending(*arguments)

    monkeypatch.setattr(webhook, "post", meanwhile)
    assert outcome(delivery)[0] == DeliveryState.SENT
    assert len(receiver.bodies) == 1


# ---- the page -------------------------------------------------------------------------------------------------------


def test_page_saves_wishes_and_sends_a_test(settings, web, user):
    settings.HAS_MAIL = True
    assert "Send a test" not in web.get("/notifications").content.decode()
    answer = web.post("/notifications", {"email_enabled": "on", "email": "a@b.test", "on_lost": "on"})
    assert answer.status_code == 302
    saved = NotificationSettings.objects.get(user=user)
    assert (list(saved.addresses), saved.on_alert, saved.on_lost) == (["email"], False, True)
    assert "Send a test" in web.get("/notifications").content.decode()
    web.post("/notifications/test")
    web.post("/notifications/test")  # too soon
    assert outbox(user) == [("email", "HACRL Web: test")]
    assert mail.outbox == []  # not in the request
    send_due()
    assert [sent.to for sent in mail.outbox] == [["a@b.test"]]
    assert "accepted by the mail server" in web.get("/notifications").content.decode()


def test_mail_cannot_be_turned_on_without_a_mail_server(settings, web):
    settings.HAS_MAIL = False
    answer = web.post("/notifications", {"email_enabled": "on", "email": "a@b.test"})
    assert (answer.status_code, "HACRL_EMAIL_URL" in answer.content.decode()) == (422, True)


def test_nobody_sees_anothers_messages_not_even_staff(client, user):
    Delivery.objects.create(user=user, key="k", channel="email", target="secret@b.test", subject="s", body={"text": ""})
    client.force_login(make_user(is_staff=True))
    assert "secret@b.test" not in client.get("/notifications").content.decode()
