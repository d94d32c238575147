"""Tokens: which are good, whatever was done to them; and keys that come, go and stay down."""

import asyncio
import json
import os
import random
import string
import time
from collections.abc import Sequence
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from queen.config import from_environment
from queen.core.errors import KeysUnavailableError, SettingError, UnauthorizedError
from queen.core.rate_limit import RateLimit
from queen.http.access import Access, Levels
from queen.security.authentication import RoleNames, verifier_of, warn
from queen.security.token_keys import FixedKeys, KeySet, keys_of_set, pem_key, secret_key
from queen.security.tokens import TokenRules, Verifier
from spec.guarantees import Level, checks
from tests.support import virtual_time
from tests.support.tokens import (
    AUDIENCE,
    ISSUER,
    LONG_S,
    SECRET,
    bad_tokens,
    claims,
    confused,
    edwards_key,
    encoded,
    jwk,
    pem,
    rsa_key,
    signed,
    token,
)

#: 100,000 for the figure of the issue: it takes a minute.
TAMPERED = int(os.environ.get("QUEEN_TAMPERED_TOKENS", "2000"))
ALPHABET = string.ascii_letters + string.digits + "-_"


def rules(*algorithms: str, **changes: Any) -> TokenRules:
    return TokenRules(algorithms or ("HS256", "RS256"), ISSUER, AUDIENCE, **changes)


def verifier(*algorithms: str, **changes: Any) -> Verifier:
    return Verifier(rules(*algorithms, **changes), FixedKeys([secret_key(SECRET), pem_key(pem(rsa_key()))]))


def refused(text: str, judge: Verifier | None = None) -> str:
    """Why a token is refused."""
    with pytest.raises(UnauthorizedError) as refusal:
        asyncio.run((judge or verifier()).verify(text))
    return str(refusal.value)


# ---------------------------------------------------------------- good and bad


@pytest.mark.parametrize(
    ("algorithm", "signing", "public"),
    [
        ("HS256", SECRET, {"JWT_SECRET": SECRET}),
        ("RS256", rsa_key(), {"JWT_PUBLIC_KEY": pem(rsa_key())}),
        ("EdDSA", edwards_key(), {"JWT_PUBLIC_KEY": pem(edwards_key()).replace("\n", "\\n")}),
    ],
)
async def test_a_token_of_each_algorithm_is_good_where_it_is_asked_for_and_only_there(
    algorithm: str, signing: Any, public: dict[str, str]
) -> None:
    text = signed(claims("read-only"), signing, algorithm)
    for asked in (algorithm, "auto"):
        verifier = verifier_of(from_environment({"JWT_ENABLED": "1", "JWT_ALGORITHM": asked, **public}))
        assert verifier is not None
        identity = await verifier.verify(text)
        assert (identity.subject, identity.roles) == ("alice", ("read-only",))
    others = {"JWT_SECRET": "x" * 40, "JWT_PUBLIC_KEY": pem(rsa_key("another"))}
    for asked in {"HS256", "RS256"} - {algorithm}:
        elsewhere = verifier_of(from_environment({"JWT_ENABLED": "1", "JWT_ALGORITHM": asked, **others}))
        assert elsewhere is not None
        with pytest.raises(UnauthorizedError, match=f"Token uses {algorithm}, expected {asked}"):
            await elsewhere.verify(text)


@checks("G-SEC-2", level=Level.MODEL)
@pytest.mark.parametrize(("what", "text"), bad_tokens().items(), ids=bad_tokens())
def test_a_token_that_proves_nothing_is_refused(what: str, text: str) -> None:
    assert refused(text)


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("expired", "Token has expired"),
        ("not yet valid", "Token is not valid yet"),
        ("another audience", "Token is for another audience"),
        ("another issuer", "Token is from another issuer"),
        ("another secret", "HS256 validation error: invalid signature"),
        ("alg none with a signature", "Token uses none, expected HS256 or RS256"),
        ("not a token", "Token decode error: not three parts of base64url"),
    ],
)
def test_the_sender_is_told_why(what: str, why: str) -> None:
    assert refused(bad_tokens()[what]) == why


@checks("G-SEC-2", level=Level.MODEL)
def test_a_public_key_is_no_secret_for_a_server_that_knows_only_that_key() -> None:
    only_rsa = Verifier(rules("HS256", "RS256"), FixedKeys([pem_key(pem(rsa_key()))]))
    assert refused(confused(claims(), pem(rsa_key())), only_rsa) == "Unknown key ID: None"


def test_clocks_may_be_apart_by_the_leeway() -> None:
    now = int(time.time())
    early, late = signed(claims(nbf=now + 1800)), signed(claims(exp=now - 1800))
    for text in (early, late):
        assert asyncio.run(verifier(leeway_s=LONG_S).verify(text)).subject == "alice"
    assert refused(early, verifier(leeway_s=0)) == "Token is not valid yet"
    assert refused(late, verifier(leeway_s=0)) == "Token has expired"


async def test_a_token_without_an_end_is_good_unless_the_settings_say_otherwise() -> None:
    text = signed(claims(exp=None))
    assert (await verifier().verify(text)).expires_at == float("inf")
    with pytest.raises(UnauthorizedError, match='missing the "exp" claim'):
        await verifier(needs_expiry=True).verify(text)


@pytest.mark.parametrize("subject", ["x" * 256, "a\0b", "\ud800", 7, ["alice"]])
def test_a_subject_that_cannot_be_stamped_is_refused(subject: Any) -> None:
    head = f"{encoded({'alg': 'HS256'})}.{encoded(claims(sub=subject))}"
    signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(head.encode(), SECRET.encode())
    assert "decode error" in refused(f"{head}.{encoded(signature)}")


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"role": "admin"}, Access.ADMIN),
        ({"role": "read-write"}, Access.READ_WRITE),
        ({"role": None, "roles": ["guest", "read-only"]}, Access.READ_ONLY),
        ({"role": "read-only", "roles": ["read-write"]}, Access.READ_WRITE),
        ({"role": ["admin"]}, Access.ADMIN),
        ({"role": "Admin"}, Access.PUBLIC),
        ({"role": "root"}, Access.PUBLIC),
        ({"role": {"admin": True}, "roles": [["admin"], 1]}, Access.PUBLIC),
        ({"role": None}, Access.PUBLIC),
    ],
)
async def test_the_highest_known_role_counts(changes: dict[str, Any], found: Access) -> None:
    identity = await verifier().verify(token(**changes))
    assert Levels(RoleNames("admin", "read-write", "read-only")).of(identity.roles) is found


@pytest.mark.parametrize(
    "head", [{"alg": "\ud800"}, {"alg": "HS256", "kid": "\ud800"}, {"alg": "HS256", "crit": "\ud800"}]
)
def test_a_refusal_can_be_told_whatever_the_token_names(head: dict[str, str]) -> None:
    text = f"{encoded(head)}.{encoded(claims())}.{encoded(b'x')}"
    for judge in (verifier(), Verifier(rules("HS256"), FixedKeys([]))):
        assert refused(text, judge).encode()


@pytest.mark.parametrize(
    ("claim", "changes", "found"),
    [
        (
            "realm_access.roles",
            {"realm_access": {"roles": ["offline_access", "read-write"]}},
            ("offline_access", "read-write"),
        ),
        ("https://queen.example/roles", {"https://queen.example/roles": ["admin"]}, ("admin",)),
        ("a.b", {"a.b": ["x"], "a": {"b": ["y"]}}, ("x",)),
        ("a.b.c", {"a": {"b": "text"}}, ()),
        ("a.b", {"a": ["b"]}, ()),
        ("a.", {"a": {"": ["admin"]}}, ("admin",)),
    ],
)
async def test_roles_may_lie_below_other_claims(claim: str, changes: dict[str, Any], found: tuple[str, ...]) -> None:
    assert (await verifier(roles_claim=claim).verify(token(None, **changes))).roles == found


async def test_claims_and_roles_have_the_names_of_the_settings() -> None:
    environment = {
        "JWT_ENABLED": "1", "JWT_SECRET": SECRET, "JWT_ROLES_CLAIM": "scope", "JWT_ROLES_ARRAY_CLAIM": "groups",
    }  # fmt: skip
    verifier = verifier_of(from_environment(environment))
    assert verifier is not None
    identity = await verifier.verify(token("admin", scope="boss", groups=["staff"]))
    assert identity.roles == ("boss", "staff")
    assert Levels(RoleNames("boss", "writer", "staff")).of(identity.roles) is Access.ADMIN


# ---------------------------------------------------------------- tampering


def tampered(text: str, chance: random.Random) -> str:
    """The token with something changed in it, never the same spelling."""
    head, body, signature = text.split(".")
    place = chance.randrange(len(text))
    match chance.randrange(7):
        case 0:
            return text[:place] + chance.choice(ALPHABET.replace(text[place], "")) + text[place + 1 :]
        case 1:
            return text[:place] + text[place + 1 :]
        case 2:
            return text[:place] + chance.choice(ALPHABET + "=.!é ") + text[place:]
        case 3:
            return f"{head}.{body}.{signature[: chance.randrange(len(signature))]}"
        case 4:
            alg = chance.choice(["none", "HS256", "RS256", "HS384", "RS512", "EdDSA", "", None, 1])
            return f"{encoded({'alg': alg, 'typ': 'JWT', 'n': chance.random()})}.{body}.{signature}"
        case 5:
            return f"{head}.{encoded(claims('admin', sub=str(chance.random())))}.{signature}"
        case _:
            # The last letter has bits that say nothing: another letter may stand for the same signature.
            return text[:-1] + chance.choice(ALPHABET.replace(text[-1], ""))


@checks("G-SEC-2", level=Level.MODEL)
def test_no_tampered_token_is_accepted() -> None:
    seed = int(os.environ.get("QUEEN_SEED", random.SystemRandom().randrange(2**32)))
    print(f"QUEEN_SEED={seed} QUEEN_TAMPERED_TOKENS={TAMPERED}")
    chance = random.Random(seed)
    judge = Verifier(
        rules("HS256", "RS256", "EdDSA"),
        FixedKeys([secret_key(SECRET), pem_key(pem(rsa_key())), pem_key(pem(edwards_key()))]),
    )
    originals = [
        signed(claims("read-only"), key, algorithm)
        for key, algorithm in ((SECRET, "HS256"), (rsa_key(), "RS256"), (edwards_key(), "EdDSA"))
    ]

    async def judged() -> list[str]:
        for text in originals:
            await judge.verify(text)
        accepted = []
        for number in range(TAMPERED):
            text = tampered(originals[number % 3], chance)
            try:
                await judge.verify(text)
            except UnauthorizedError:
                continue
            accepted.append(text)
        return accepted

    assert asyncio.run(judged()) == []


@given(st.one_of(st.text(max_size=200), st.lists(st.binary(max_size=40), min_size=3, max_size=3)))
def test_every_invalid_value_is_refused_without_a_server_error(found: str | list[bytes]) -> None:
    text = found if isinstance(found, str) else ".".join(encoded(part) for part in found)
    assert refused(text)


@given(
    header=st.dictionaries(
        st.sampled_from(["alg", "kid", "crit", "b64", "typ"]), st.none() | st.booleans() | st.text()
    ),
    body=st.dictionaries(
        st.sampled_from(["exp", "nbf", "iat", "iss", "aud", "sub", "role", "roles", "jti"]),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text() | st.integers()),
    ),
)
def test_claims_of_any_kind_under_a_good_signature_are_judged_without_a_mistake(
    header: dict[str, Any], body: dict[str, Any]
) -> None:
    head = f"{encoded({'alg': 'HS256', **header})}.{encoded(body)}"
    signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(head.encode(), SECRET.encode())
    judge = Verifier(TokenRules(("HS256",)), FixedKeys([secret_key(SECRET)]))
    try:
        identity = asyncio.run(judge.verify(f"{head}.{encoded(signature)}"))
    except UnauthorizedError:
        return
    assert all(isinstance(role, str) for role in identity.roles)


def test_too_long_tokens_are_not_parsed() -> None:
    assert "longer than" in refused(token(fill="x" * 20_000))


# ---------------------------------------------------------------- remembering


async def test_a_verified_token_is_remembered_until_it_expires() -> None:
    asked = []

    class Counted(FixedKeys):
        def find(self, algorithm: str, kid: str | None) -> Any:
            asked.append(algorithm)
            return super().find(algorithm, kid)

    now = time.time()
    judge = Verifier(rules(), Counted([secret_key(SECRET)]), lambda: now)
    text = token(exp=int(now) + 100)
    assert await judge.verify(text) is await judge.verify(text)
    assert asked == ["HS256"]
    now += 131
    await judge.verify(text)  # PyJWT's own clock has not moved: what counts is that it was asked again
    assert asked == ["HS256"] * 2


async def test_the_number_of_cached_tokens_is_bounded() -> None:
    judge = Verifier(rules(), FixedKeys([secret_key(SECRET)]), remembered_max=10)
    for number in range(25):
        await judge.verify(token(sub=str(number)))
    assert judge.remembered == 10


# ---------------------------------------------------------------- key sets


class Issuer:
    """Tells its keys; counts how often it was asked."""

    def __init__(self, *members: dict[str, Any]) -> None:
        self.members: Sequence[dict[str, Any]] = members
        self.unavailable = False
        self.asked = 0

    def load(self) -> bytes:
        self.asked += 1
        if self.unavailable:
            raise httpx.ConnectError("refused")
        return json.dumps({"keys": self.members}).encode()


def over(issuer: Issuer, **options: Any) -> Verifier:
    return Verifier(rules("HS256", "RS256", "EdDSA"), KeySet(FixedKeys([]), issuer.load, 3600, **options))


def by(name: str, **headers: Any) -> str:
    return signed(claims(), rsa_key(name), "RS256", **headers)


async def test_keys_are_fetched_once_and_found_by_their_names() -> None:
    issuer = Issuer(jwk(rsa_key("a"), kid="a"), jwk(edwards_key(), kid="e"), {"kty": "oct", "k": encoded(b"x" * 40)})
    judge = over(issuer)
    await judge.start()
    await judge.verify(by("a", kid="a"))
    await judge.verify(by("a"))
    await judge.verify(signed(claims(), edwards_key(), "EdDSA", kid="e"))
    with pytest.raises(UnauthorizedError, match="invalid signature"):
        await judge.verify(by("b", kid="a"))
    with pytest.raises(UnauthorizedError, match="Unknown key ID"):
        await judge.verify(signed(claims(), "x" * 40, "HS256"))
    await judge.stop()
    assert issuer.asked == 1


async def test_a_new_key_is_fetched_when_a_token_names_it_and_an_old_one_is_forgotten() -> None:
    issuer = Issuer(jwk(rsa_key("a"), kid="a"))
    judge = over(issuer, pause_s=0)
    await judge.start()
    old = by("a", kid="a")
    await judge.verify(old)
    issuer.members = [jwk(rsa_key("b"), kid="b")]
    await judge.verify(by("b", kid="b"))
    with pytest.raises(UnauthorizedError, match="Unknown key ID: a"):
        await judge.verify(old)
    await judge.stop()


def test_unknown_names_make_one_fetch_in_a_while_and_keys_are_fetched_again_by_themselves() -> None:
    issuer = Issuer(jwk(rsa_key("a"), kid="a"))

    async def scenario() -> None:
        judge = over(issuer, pause_s=10)
        await judge.start()
        for _ in range(20):
            with pytest.raises(UnauthorizedError, match="Unknown key ID: x"):
                await judge.verify(by("a", kid="x"))
        assert issuer.asked <= 2
        await asyncio.sleep(3 * 3600 + 60)
        assert issuer.asked >= 4
        await judge.stop()

    _virtually(scenario, issuer)


def _virtually(scenario: Any, issuer: Issuer) -> None:
    """Runs it in made-up time, in which a fetch takes none."""

    async def here(work: Any) -> Any:
        return work()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "to_thread", here)
        virtual_time.run(scenario())


def test_keys_stay_while_the_issuer_is_unreachable_and_without_keys_requests_get_503() -> None:
    issuer = Issuer(jwk(rsa_key("a"), kid="a"))
    issuer.unavailable = True

    async def scenario() -> None:
        judge = over(issuer, pause_s=10)
        await judge.start()
        with pytest.raises(KeysUnavailableError):
            await judge.verify(by("a", kid="a"))
        issuer.unavailable = False
        await asyncio.sleep(25)
        assert await judge.verify(by("a", kid="a"))
        issuer.unavailable = True
        await asyncio.sleep(7200)
        assert await judge.verify(by("a", kid="a", typ="at+jwt"))
        await judge.stop()

    _virtually(scenario, issuer)


def test_withdrawn_keys_are_not_accepted_even_if_no_others_remain() -> None:
    issuer = Issuer(jwk(rsa_key("a"), kid="a"))

    async def scenario() -> None:
        judge = over(issuer, pause_s=10)
        await judge.start()
        assert await judge.verify(by("a", kid="a"))
        issuer.members = []
        await asyncio.sleep(3601)
        with pytest.raises(UnauthorizedError, match="Unknown key ID: a"):
            await judge.verify(by("a", kid="a"))
        issuer.members = [jwk(rsa_key("b"), kid="b")]
        await asyncio.sleep(10)
        assert await judge.verify(by("b", kid="b"))
        await judge.stop()

    _virtually(scenario, issuer)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"keys": 1}', b"<html>", b"\xff"])
def test_an_invalid_key_set_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="not a JSON Web Key Set"):
        keys_of_set(body)


def test_only_public_keys_for_signatures_are_taken_and_only_for_the_algorithm_that_they_name() -> None:
    private = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(rsa_key("a")))
    members = [
        jwk(rsa_key("a"), kid="any"), jwk(rsa_key("a"), kid="one", alg="RS256"), jwk(rsa_key("a"), use="enc"),
        jwk(rsa_key("a"), alg="HS256"), jwk(edwards_key(), kid="e"), private, {"kty": "oct", "k": "eA"},
        {"kty": "EC", "crv": "P-256"}, {"kty": "RSA", "n": 1}, 7,
    ]  # fmt: skip
    keys = keys_of_set(json.dumps({"keys": members}).encode())
    assert [(key.kid, key.algorithms) for key in keys] == [
        ("any", ("RS256", "RS384", "RS512")),
        ("one", ("RS256",)),
        ("e", ("EdDSA",)),
    ]


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("environment", "advice"),
    [
        ({}, "JWT_ENABLED with JWT_ALGORITHM=HS256 needs JWT_SECRET"),
        ({"JWT_ALGORITHM": "RS256", "JWT_SECRET": "s"}, "needs JWT_JWKS_URL, or a JWT_PUBLIC_KEY for RS256"),
        ({"JWT_ALGORITHM": "EdDSA", "JWT_PUBLIC_KEY": pem(rsa_key())}, "a JWT_PUBLIC_KEY for EdDSA"),
        ({"JWT_ALGORITHM": "auto"}, "needs JWT_SECRET, JWT_PUBLIC_KEY or JWT_JWKS_URL"),
        ({"JWT_ALGORITHM": "RS256", "JWT_PUBLIC_KEY": "/no/such/file"}, "No such file"),
        ({"JWT_ALGORITHM": "RS256", "JWT_PUBLIC_KEY": "-----BEGIN PUBLIC KEY-----"}, "must be a public key"),
        (
            {"JWT_ALGORITHM": "auto", "JWT_PUBLIC_KEY": pem(rsa_key()), "JWT_JWKS_URL": "https://a/b"},
            "give only one of them",
        ),
    ],
)
def test_authentication_without_usable_keys_is_refused(environment: dict[str, str], advice: str) -> None:
    with pytest.raises(SettingError, match=advice):
        verifier_of(from_environment({"JWT_ENABLED": "true", **environment}))


def test_a_key_of_another_kind_is_refused() -> None:
    key = ec.generate_private_key(ec.SECP256R1()).public_key()
    text = key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    with pytest.raises(SettingError, match="Supported types are RSA, Ed25519 and Ed448"):
        pem_key(text.decode())


def test_a_secret_that_can_be_guessed_and_keys_over_http_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    for environment in ({"JWT_SECRET": "short"}, {"JWT_JWKS_URL": "http://issuer/keys"}):
        warn(from_environment({"JWT_ENABLED": "1", **environment}))
    assert ["shorter than 32 bytes" in line for line in caplog.messages] == [True, False]
    assert "not https" in caplog.messages[1]
    assert "short: " not in caplog.text


@pytest.mark.parametrize("algorithm", ["HS256", "auto"])
def test_the_secret_of_the_examples_is_refused(algorithm: str) -> None:
    environment = {"JWT_ENABLED": "1", "JWT_ALGORITHM": algorithm, "JWT_SECRET": "change-me"}
    with pytest.raises(SettingError, match="a published example"):
        verifier_of(from_environment(environment))


# ---------------------------------------------------------------- rate limit


def test_a_client_makes_so_many_requests_a_second_and_others_are_not_affected() -> None:
    limit = RateLimit(5)
    assert [limit.admits("a", 0.0) for _ in range(7)] == [True] * 5 + [False] * 2
    assert limit.admits("b", 0.0)
    assert [limit.admits("a", 0.4) for _ in range(3)] == [True, True, False]
    assert sum(limit.admits("a", 1 + number / 100) for number in range(1000)) in range(50, 56)


def test_the_number_of_remembered_clients_is_bounded() -> None:
    limit = RateLimit(1, clients_max=3)
    for client in "abcd":
        assert limit.admits(client, 0.0)
    assert limit.admits("a", 0.0), "forgotten"
    assert not limit.admits("d", 0.0)
