"""TLS to a broker: whom it trusts is said in the URI, as RabbitMQ's own URIs do.

    rabbitmq-stream+tls://tier:SECRET@broker-1:5551?cacertfile=/etc/ssl/rabbitmq-ca.pem
    https://tier:SECRET@127.0.0.1:15671?cacertfile=/etc/ssl/ca.pem&server_name_indication=broker-1

    cacertfile              authorities that may have signed the certificate, PEM; by default those
                            of the system (SSL_CERT_FILE and SSL_CERT_DIR, as OpenSSL reads them)
    server_name_indication  name that the certificate must be for; the host of the URI by default

Certificate and name are always checked. The file is read for each connection, so that it may be
replaced while an agent runs.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from urllib.parse import parse_qsl

from coldstream.errors import InvalidInputError

_AUTHORITIES, _NAME = "cacertfile", "server_name_indication"


@dataclass(frozen=True, slots=True)
class Tls:
    """How to trust a broker.

    Attributes:
        authorities: file of certificates in PEM; "" for those of the system.
        name: that the certificate must be for; "" for the host that is asked.
    """

    authorities: str = ""
    name: str = ""

    @classmethod
    def parse(cls, query: str, *, tls: bool) -> Tls | None:
        """From the query of a URI; None where the URI wants no TLS.

        Raises:
            InvalidInputError: it says anything else, or something of TLS where there is none, or
                the file of authorities cannot be used.
        """
        given = dict(parse_qsl(query, keep_blank_values=True))
        if unknown := sorted(given.keys() - {_AUTHORITIES, _NAME}):
            raise InvalidInputError(
                f"a broker URI has no parameter {unknown[0]!r}, only {_AUTHORITIES} and {_NAME}"
            )
        if given and not tls:
            raise InvalidInputError(
                f"{', '.join(sorted(given))} in a broker URI without TLS; it begins with"
                " rabbitmq-stream+tls:// or https://"
            )
        if not tls:
            return None
        made = cls(given.get(_AUTHORITIES, ""), given.get(_NAME, ""))
        made.context()
        return made

    def context(self) -> ssl.SSLContext:
        """Checks certificates and names.

        Raises:
            InvalidInputError: the file of authorities cannot be read, or has no certificate.
        """
        try:
            return ssl.create_default_context(cafile=self.authorities or None)
        except ssl.SSLError as exc:
            raise InvalidInputError(
                f"{_AUTHORITIES} has no certificate in PEM", key=self.authorities
            ) from exc
        except OSError as exc:
            raise InvalidInputError(
                f"{_AUTHORITIES} cannot be read: {exc.strerror}", key=self.authorities
            ) from exc


def refused(error: OSError) -> str:
    """Why a connection with TLS failed, in words of who runs the agent."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"has a certificate that is not trusted: {error.verify_message}"
    reason = error.reason if isinstance(error, ssl.SSLError) else ""
    if reason == "WRONG_VERSION_NUMBER":
        return "does not speak TLS at this port"
    if reason == "TLSV13_ALERT_CERTIFICATE_REQUIRED":
        return "wants a certificate of its clients, and there is none to show"
    if reason == "SSLV3_ALERT_HANDSHAKE_FAILURE":
        return "breaks off the handshake: perhaps it wants a certificate of its clients"
    return f"does not answer: {error}"
