"""``ojs token create|list|rotate|revoke``."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandParser

from django_ojs import clock
from django_ojs.domain.durations import format_instant
from django_ojs.management.base import OJSCommand, actor_of, table
from django_ojs.management.times import EXPIRY, expiry_of, moment, span_ms
from django_ojs.management.workflow_verbs import AddVerb
from django_ojs.models import ApiToken
from django_ojs.services import tokens


class TokenVerbs(OJSCommand):
    """The verbs about API tokens."""

    def add_token_verbs(self, parser: CommandParser, add: AddVerb) -> None:
        """Declare the subcommands."""
        verbs = parser.add_subparsers(dest="token_verb", required=True, metavar="VERB")
        create = add(verbs, "create", "a token for a client; shown once")
        create.add_argument("name", metavar="CLIENT")
        create.add_argument("--scope", action="append", required=True, choices=tokens.SCOPES)
        create.add_argument(
            "--queue", action="append", help="a queue, or a prefix that ends in '*' (default all)"
        )
        create.add_argument("--expires-at", metavar="T", help=EXPIRY)
        add(verbs, "list", "all tokens, without their secrets")
        rotate = add(verbs, "rotate", "a successor; the old one works on for a while")
        rotate.add_argument("name", metavar="CLIENT")
        rotate.add_argument("--overlap", default="24h", help="how long (default 24h; 0 for not at all)")
        rotate.add_argument(
            "--expires-at",
            metavar="T|never",
            help=f"of the successor: {EXPIRY}, or never (default: as long as the old one was given)",
        )
        revoke = add(verbs, "revoke", "end the tokens of a client, or one by its prefix")
        revoke.add_argument("name", metavar="CLIENT|PREFIX")

    def do_token(self, alias: str, options: dict[str, Any]) -> None:
        """One of the subcommands."""
        verb: Callable[[str, dict[str, Any]], None] = getattr(self, f"_token_{options['token_verb']}")
        verb(alias, options)

    def _token_create(self, alias: str, options: dict[str, Any]) -> None:
        expires_at = None
        if options["expires_at"] is not None:
            expires_at = moment(options["expires_at"], "--expires-at", alias)
        made = tokens.create(
            options["name"],
            scopes=options["scope"],
            queues=options["queue"] or ["*"],
            expires_at=expires_at,
            actor=actor_of(options),
            using=alias,
        )
        self._shown_once(*made, options)

    def _token_rotate(self, alias: str, options: dict[str, Any]) -> None:
        overlap = timedelta(milliseconds=span_ms(options["overlap"], "--overlap", allow_zero=True))
        expiry = expiry_of(options, "never", alias)
        made = tokens.rotate(
            options["name"], overlap=overlap, expires_at=expiry, actor=actor_of(options), using=alias
        )
        self._shown_once(*made, options)

    def _shown_once(self, token: ApiToken, text: str, options: dict[str, Any]) -> None:
        self.answer(options, {"client": token.name, "prefix": token.prefix, "token": text}, [text])
        if options["format"] != "json":
            self.print_line("This is shown once: store it now.", trouble=True)

    def _token_revoke(self, alias: str, options: dict[str, Any]) -> None:
        count = tokens.revoke(options["name"], actor=actor_of(options), using=alias)
        self.answer(options, {"revoked": count}, [f"{count} revoked"])

    def _token_list(self, alias: str, options: dict[str, Any]) -> None:
        now = clock.now(alias)
        found = [
            {
                "client": token.name,
                "prefix": token.prefix,
                "scopes": token.scopes,
                "queues": token.queues,
                "live": tokens.is_live(token, now),
                **{
                    name: None if (at := getattr(token, name)) is None else format_instant(at)
                    for name in ("expires_at", "revoked_at", "last_used_at")
                },
            }
            for token in tokens.listed(using=alias)
        ]
        rows = [("CLIENT", "PREFIX", "STATE", "SCOPES", "QUEUES", "EXPIRES")]
        for row in found:
            state = "live" if row["live"] else "revoked" if row["revoked_at"] else "expired"
            expires = row["expires_at"] or "never"
            lists = ",".join(row["scopes"]), ",".join(row["queues"])
            rows.append((row["client"], row["prefix"], state, *lists, expires))
        self.answer(options, found, table(rows) if found else ["no tokens"])
