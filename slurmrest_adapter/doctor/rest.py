"""slurmrestd, before the gateway: which endpoints answer, whether the token is taken, what is served.

The gateway takes the first endpoint that answers and hides which; here each is asked by itself.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import quote

import requests

from slurmrest_adapter.config import Settings
from slurmrest_adapter.doctor.verdict import Check, fail, ok, skip, warn
from slurmrest_adapter.domain.errors import (
    ConfigError,
    Incompatible,
    Rejected,
    SlurmError,
    Unauthorized,
    Unavailable,
)
from slurmrest_adapter.slurm import answers, negotiate
from slurmrest_adapter.slurm.session import Session
from slurmrest_adapter.slurm.tokens import TokenSource

ENDPOINT, TOKEN, USERS, VERSION, ACCOUNTING = "endpoint", "token", "users", "api-version", "accounting"
_SOON_SECONDS = 300.0


class Probe:
    """Plain questions to one endpoint, each as a named user.

    Args:
        endpoint: as configured.
        tokens: where tokens come from.
        connect_s, read_s: time-outs in seconds.
    """

    def __init__(self, endpoint: str, tokens: TokenSource, connect_s: float, read_s: float) -> None:
        self.endpoint = endpoint
        self.tokens = tokens
        self._session = Session([endpoint], connect_s=connect_s, read_s=read_s, pool=1)

    def get(self, path: str, user: str | None, params: Sequence[tuple[str, str]] = ()) -> requests.Response:
        """One GET.

        Raises:
            Unavailable: no answer.
            Unauthorized: there is no token to send.
        """
        headers = {}
        token = self.tokens.token(user)
        if token is not None:
            headers[answers.TOKEN_HEADER] = token.reveal()
            if user is not None:
                headers[answers.USER_HEADER] = user
        return self._session.send("GET", path, params=params, headers=headers, repeatable=True)

    def check(self, response: requests.Response, user: str | None) -> None:
        """Raises what the answer means, as the gateway would."""
        answers.check(response, source=self.tokens, user=user, ours=negotiate.OURS)

    def serves(self, version: str, user: str | None) -> bool:
        """Whether this slurmrestd serves an API version. Raises SlurmError."""
        try:
            self.check(self.get(f"/slurm/{version}/ping/", user), user)
        except Incompatible:
            return False
        return True

    def close(self) -> None:
        """Closes its connection."""
        self._session.close()


def endpoint(probe: Probe, user: str | None) -> tuple[bool, Check]:
    """Whether slurmrestd answers here: any answer of its own is one, a refusal too."""
    try:
        response = probe.get(f"/slurm/{negotiate.OURS[-1]}/ping/", user)
        probe.check(response, user)
    except (Incompatible, Unauthorized, Rejected):
        pass
    except Unavailable as error:
        return False, fail(
            ENDPOINT,
            str(error),
            "start slurmrestd there, open the way to it, or correct slurm.endpoints",
            probe.endpoint,
        )
    except SlurmError as error:
        return False, fail(ENDPOINT, str(error), "correct slurm.endpoints", probe.endpoint)
    return True, ok(ENDPOINT, "slurmrestd answers", probe.endpoint)


def token_at_hand(source: TokenSource, user: str | None, settings: Settings, now: float) -> Check:
    """Whether there is a token to send, and how long it lasts; asks nobody."""
    if not source.says_who:
        return ok(TOKEN, f"{source.name}: the listener decides who asks", "source")
    try:
        source.token(user)
    except (Unauthorized, ConfigError) as error:
        return fail(TOKEN, _without(str(error), source.advice), source.advice, "source")
    if settings.slurm.token.source == "hs256":
        return ok(
            TOKEN,
            f"{source.name}: a token for each user, good for {settings.slurm.token.lifetime_s} s",
            "source",
        )
    end = source.expires(user)
    if end is None:
        return ok(TOKEN, f"{source.name}: it does not say when it expires", "source")
    left = end - now
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(end))
    if left <= 0:
        return fail(TOKEN, f"{source.name} expired at {when}", source.advice, "source")
    if left < _SOON_SECONDS:
        return warn(TOKEN, f"{source.name} expires in {int(left)} s", source.advice, "source")
    return ok(TOKEN, f"{source.name}, until {when}", "source")


def token_accepted(probe: Probe, user: str | None, version: str) -> Check:
    """Whether Slurm takes the token of whoever asks the bulk questions; by whom it is refused."""
    return _accepted(probe, user, version, TOKEN, "accepted")


def refused_at_the_door(source: TokenSource, words: str) -> Check:
    """slurmrestd itself refused, before Slurm was asked."""
    return fail(TOKEN, f"refused by slurmrestd: {_without(words, source.advice)}", source.advice, "accepted")


def may_act_for(probe: Probe, user: str, version: str) -> Check:
    """Whether calls as one user of the identity map are taken."""
    found = _accepted(probe, user, version, USERS, user)
    if found.verdict.value != "fail" or probe.tokens.needs_user:
        return found
    return fail(
        USERS,
        found.seen,
        f"only the token of root or of Slurm's own user may act for others: use source hs256, or map pods "
        f"to the token's own user alone; {found.advice}",
        user,
    )


def _accepted(probe: Probe, user: str | None, version: str, name: str, subject: str) -> Check:
    who = user or "the token's own user"
    try:
        # An id that need not exist: the answer is an empty list, but only to somebody.
        response = probe.get(f"/slurm/{version}/jobs/state/", user, [("job_id", "1")])
        refuser = "slurmrestd" if response.status_code == 401 else "slurmctld"
        probe.check(response, user)
    except Unauthorized as error:
        seen = _without(str(error), probe.tokens.advice)
        return fail(name, f"refused by {refuser}: {seen}", probe.tokens.advice, subject)
    except Unavailable as error:
        return skip(name, f"could not be asked: {error}", subject)
    except Rejected:
        pass  # slurmctld knew who asked, and had something else to say
    except SlurmError as error:
        return fail(name, str(error), "look into slurmrestd's log", subject)
    return ok(name, f"slurmctld takes calls as {who}", subject)


@dataclass(frozen=True, slots=True)
class Versions:
    """What came of the question for API versions.

    Attributes:
        chosen: None when there is none.
        refused: the words with which slurmrestd refused to say anything; empty otherwise.
    """

    chosen: str | None
    check: Check
    refused: str = ""


def versions(serves: Callable[[str], bool], configured: str) -> Versions:
    """Ours, theirs and the one that is spoken.

    Args:
        serves: asks slurmrestd; see `Probe.serves`.
        configured: ``auto`` or one version.
    """
    ours = negotiate.OURS
    try:
        theirs = negotiate.served(serves)
        wanted = ours if configured == "auto" else (negotiate.load(configured).version,)
    except Unauthorized as error:
        return Versions(None, skip(VERSION, "slurmrestd tells nobody whose token it refuses"), str(error))
    except ConfigError as error:
        return Versions(None, fail(VERSION, str(error), "set slurm.api_version: auto"))
    except SlurmError as error:
        return Versions(None, fail(VERSION, str(error), "look into slurmrestd's log"))
    said = f"ours {', '.join(reversed(ours))}; slurmrestd's {', '.join(theirs) or 'none that it would name'}"
    chosen = next((version for version in wanted if version in theirs), None)
    if chosen is not None:
        return Versions(chosen, ok(VERSION, f"{chosen} ({said})"))
    if configured != "auto":
        advice = f"set slurm.api_version to auto or one of {', '.join(theirs) or 'those it serves'}"
        return Versions(None, fail(VERSION, f"slurmrestd does not serve {configured} ({said})", advice))
    return Versions(
        None,
        fail(
            VERSION,
            f"none in common ({said})",
            "use a slurmrestd of Slurm 23.11 or newer, or a newer slurmrest-adapter; is openapi/slurmctld "
            "among slurmrestd's plugins (-s)?",
        ),
    )


def accounting(probe: Probe, user: str | None, version: str, gres: Sequence[str]) -> list[Check]:
    """Whether slurmdbd answers through slurmrestd, and counts the GPUs.

    Args:
        gres: the configured GRES names, without types: ``gpu``.
    """
    try:
        response = probe.get(f"/slurmdb/{quote(version)}/tres/", user)
        probe.check(response, user)
        rows = json.loads(response.content).get("TRES") or []
        counted = {f"{row.get('type')}/{row.get('name')}" for row in rows if isinstance(row, dict)}
    except answers.NoDatabase:
        return [
            warn(
                ACCOUNTING,
                "slurmrestd serves no /slurmdb: usage of pods will be what the adapter saw itself",
                "where the site has a slurmdbd, start slurmrestd with -s slurmctld,slurmdbd",
                "slurmdbd",
            )
        ]
    except (SlurmError, ValueError) as error:
        return [
            fail(
                ACCOUNTING,
                f"slurmdbd cannot be asked: {error}",
                "start slurmdbd, and see that it has the same jwt_key; pods run meanwhile, their usage waits",
                "slurmdbd",
            )
        ]
    found = [ok(ACCOUNTING, "slurmdbd answers through slurmrestd", "slurmdbd")]
    for name in dict.fromkeys(gres):
        if f"gres/{name}" in counted:
            found.append(ok(ACCOUNTING, f"gres/{name} is accounted", f"gres/{name}"))
        else:
            found.append(
                warn(
                    ACCOUNTING,
                    f"gres/{name} is not accounted: slurmdbd will not say how long it was used",
                    f"add gres/{name} to AccountingStorageTRES in slurm.conf and restart slurmctld",
                    f"gres/{name}",
                )
            )
    return found


def _without(text: str, advice: str) -> str:
    return text.removesuffix(advice).rstrip("; ")
