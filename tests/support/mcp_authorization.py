"""An authorization server for the MCP server of mcp_tools.py, whose user agrees at once."""

import time
from secrets import token_urlsafe
from typing import Any

from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken


def sign_in_options(origin: str) -> dict[str, Any]:
    """The options of an MCPServer at this origin whose users sign in."""
    settings = AuthSettings.model_validate(
        {
            "issuer_url": origin,
            "resource_server_url": f"{origin}/mcp",
            "client_registration_options": ClientRegistrationOptions(enabled=True),
            "validate_token_resource": False,
        }
    )
    return {"auth": settings, "auth_server_provider": Authorization()}


class Authorization:
    """Clients, codes and tokens, in memory. An access token is valid for two requests, so that clients refresh it."""

    def __init__(self) -> None:
        self._clients: dict[str, OAuthClientInformationFull] = {}
        self._codes: dict[str, AuthorizationCode] = {}
        self._refresh: dict[str, RefreshToken] = {}
        self._uses: dict[str, int] = {}  # access token -> requests that it is still valid for

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        """A registered client."""
        return self._clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        """Register a client."""
        self._clients[str(client_info.client_id)] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        """Return the address to which the user, who has agreed, is sent."""
        code = AuthorizationCode(
            code=token_urlsafe(),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=str(client.client_id),
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
        )
        self._codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        """A code that was not used."""
        return self._codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        """The tokens for a code."""
        del self._codes[authorization_code.code]
        return self._tokens(str(client.client_id))

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        """A refresh token that was not used."""
        return self._refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        """New tokens."""
        del self._refresh[refresh_token.token]
        return self._tokens(str(client.client_id))

    async def load_access_token(self, token: str) -> AccessToken | None:
        """An access token that is valid."""
        if not self._uses.get(token):
            return None
        self._uses[token] -= 1
        return AccessToken(token=token, client_id="any", scopes=[])

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        """Do nothing: it is not offered."""

    def _tokens(self, client_id: str) -> OAuthToken:
        access, refresh = token_urlsafe(), token_urlsafe()
        self._uses[access] = 2
        self._refresh[refresh] = RefreshToken(token=refresh, client_id=client_id, scopes=[])
        return OAuthToken(access_token=access, refresh_token=refresh, expires_in=3600)
