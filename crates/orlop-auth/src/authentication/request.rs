//! Authentication of a whole request.

use std::{sync::Arc, time::Instant};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::{
    anonymous::Anonymous,
    client_certificate::Peer,
    front_proxy::{FrontProxy, HeaderNames},
    metrics::{Attempt, AuthenticationMetrics},
};
use crate::{
    User,
    authenticator::{
        Authenticated, AuthenticationError, Outcome, TokenAuthenticator, UnionAuthenticator,
        with_authenticated_group,
    },
    time::system_clock,
};

/// Prefix of the headers of impersonation.
const IMPERSONATE: &str = "impersonate-";
const INVALID_TOKEN: &str = "invalid bearer token";
/// Prefix of the WebSocket subprotocol that carries a bearer token.
const BEARER_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// Credentials that a request presents.
pub struct PresentedCredentials {
    bearer: Option<String>,
    websocket: Result<Option<String>, &'static str>,
    /// Headers of a front proxy, or of a client that would be one.
    proxied: HeaderMap,
    /// Headers of impersonation.
    pub impersonation: HeaderMap,
}

impl std::fmt::Debug for PresentedCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Tokens stay out of logs.
        f.debug_struct("PresentedCredentials").finish_non_exhaustive()
    }
}

impl Default for PresentedCredentials {
    fn default() -> Self {
        Self { bearer: None, websocket: Ok(None), proxied: HeaderMap::new(), impersonation: HeaderMap::new() }
    }
}

/// Authenticates requests: front proxy, client certificate, bearer token, anonymous.
#[derive(Clone, Debug)]
pub struct RequestAuthenticator {
    front_proxy: Option<Arc<FrontProxy>>,
    tokens: Arc<dyn TokenAuthenticator>,
    anonymous: Anonymous,
    audiences: Vec<String>,
    metrics: AuthenticationMetrics,
}

impl Default for RequestAuthenticator {
    fn default() -> Self {
        Self::new(Arc::new(UnionAuthenticator::default()), Vec::new())
    }
}

impl RequestAuthenticator {
    /// Returns an authenticator of certificates and of tokens for some audiences. Requests without either are
    /// anonymous.
    pub fn new(tokens: Arc<dyn TokenAuthenticator>, audiences: Vec<String>) -> Self {
        let metrics = AuthenticationMetrics::default();
        Self { front_proxy: None, tokens, anonymous: Anonymous::Enabled, audiences, metrics }
    }

    /// Sets the metrics.
    #[must_use]
    pub fn with_metrics(mut self, metrics: AuthenticationMetrics) -> Self {
        self.metrics = metrics;
        self
    }

    /// Returns the metrics.
    pub fn metrics(&self) -> &AuthenticationMetrics {
        &self.metrics
    }

    /// Trusts front proxies.
    #[must_use]
    pub fn with_front_proxy(mut self, front_proxy: Option<FrontProxy>) -> Self {
        self.front_proxy = front_proxy.map(Arc::new);
        self
    }

    /// Sets which requests need no credential.
    #[must_use]
    pub fn with_anonymous(mut self, anonymous: Anonymous) -> Self {
        self.anonymous = anonymous;
        self
    }

    /// Returns the audiences of the API server.
    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// Takes the headers that carry identities out of a request: credentials, those that a front proxy sets, those of
    /// impersonation. Nothing later takes them for its own or passes them on.
    pub fn take(&self, headers: &mut HeaderMap) -> PresentedCredentials {
        let mut presented = PresentedCredentials {
            bearer: bearer_token(headers).map(str::to_owned),
            websocket: websocket_token(headers),
            ..PresentedCredentials::default()
        };
        headers.remove(header::AUTHORIZATION);
        if matches!(presented.websocket, Ok(Some(_)) | Err(_)) {
            remove_websocket_token(headers);
        }
        let names = self.front_proxy.as_ref().map(|front_proxy| front_proxy.headers());
        let standard = HeaderNames::standard();
        let is_proxied =
            |name: &HeaderName| standard.contains(name) || names.is_some_and(|names| names.contains(name));
        let is_identity = |name: &&HeaderName| is_proxied(name) || name.as_str().starts_with(IMPERSONATE);
        let taken: Vec<HeaderName> = headers.keys().filter(is_identity).cloned().collect();
        for name in taken {
            let into = if is_proxied(&name) { &mut presented.proxied } else { &mut presented.impersonation };
            if let header::Entry::Occupied(entry) = headers.entry(&name) {
                for value in entry.remove_entry_mult().1 {
                    into.append(&name, value);
                }
            }
        }
        presented
    }

    /// Returns the user of a request.
    pub async fn authenticate(
        &self,
        peer: &Peer,
        presented: &PresentedCredentials,
        path: &str,
    ) -> Result<Authenticated, AuthenticationError> {
        let started = Instant::now();
        let (attempt, found) = match self.find(peer, presented).await {
            Ok(Some(found)) => (Attempt::Success, Ok(found)),
            Ok(None) if self.anonymous.allows(path) => {
                (Attempt::Success, Ok(Authenticated::user(User::anonymous())))
            }
            Ok(None) => (Attempt::Failure, Err(AuthenticationError::invalid("no credentials"))),
            Err(error) => (Attempt::Error, Err(error)),
        };
        self.metrics.record(attempt, started.elapsed());
        found
    }

    /// Returns the user of the credentials of a request; `None` if it has none.
    async fn find(&self, peer: &Peer, presented: &PresentedCredentials) -> Outcome {
        // A credential that is not valid does no harm beside one that is.
        let mut errors = Vec::new();
        match peer {
            Peer::InProcess(user) => {
                return Ok(Some(Authenticated { user: user.clone(), ..Authenticated::default() }));
            }
            Peer::Certificate(certificate) => {
                let now = system_clock();
                let proxied = match &self.front_proxy {
                    Some(front_proxy) => front_proxy.user(certificate, &presented.proxied, now),
                    None => Ok(None),
                };
                match proxied.map(|user| user.map(Arc::new)) {
                    Ok(Some(user)) => return Ok(Some(authenticated(user))),
                    Ok(None) => {}
                    Err(why) => errors.push(why),
                }
                match certificate.user(now) {
                    Ok(Some(user)) => return Ok(Some(authenticated(user))),
                    Ok(None) => {}
                    Err(why) => errors.push(why),
                }
            }
            Peer::Unknown => {}
        }
        let mut unavailable = None;
        let from_protocol = match &presented.websocket {
            Ok(token) => token.as_deref(),
            Err(why) => {
                errors.push((*why).to_owned());
                None
            }
        };
        for token in [presented.bearer.as_deref(), from_protocol].into_iter().flatten() {
            match self.authenticate_token(token, &self.audiences).await {
                Ok(Some(found)) => return Ok(Some(found)),
                Ok(None) => errors.push(INVALID_TOKEN.to_owned()),
                Err(AuthenticationError::Invalid(why)) => errors.push(why),
                Err(error) => unavailable = Some(error),
            }
        }
        match unavailable {
            Some(error) => Err(error),
            None if !errors.is_empty() => Err(AuthenticationError::Invalid(errors.join(", "))),
            None => Ok(None),
        }
    }

    /// Returns the user of a bearer token for one of some audiences.
    pub async fn authenticate_token(&self, token: &str, audiences: &[String]) -> Outcome {
        let found = self.tokens.authenticate(token, audiences).await?;
        Ok(found.map(|found| Authenticated { user: with_authenticated_group(found.user), ..found }))
    }
}

fn authenticated(user: Arc<User>) -> Authenticated {
    Authenticated { user: with_authenticated_group(user), ..Authenticated::default() }
}

/// Returns the token of the Authorization header, if its scheme is Bearer.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim();
    let (scheme, rest) = value.split_once(' ')?;
    let token = rest.split(' ').next().unwrap_or_default();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Returns the token in the subprotocols of a WebSocket request, which browsers use as they cannot set headers.
fn websocket_token(headers: &HeaderMap) -> Result<Option<String>, &'static str> {
    let has = |name, word: &str| {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|known| known.trim().eq_ignore_ascii_case(word))
    };
    if !has(header::CONNECTION, "upgrade") || !has(header::UPGRADE, "websocket") {
        return Ok(None);
    }
    let (mut token, mut has_other) = (None, false);
    for protocol in protocols(headers) {
        let Some(encoded) = protocol.strip_prefix(BEARER_PROTOCOL) else {
            has_other = true;
            continue;
        };
        if token.is_some() {
            return Err("multiple base64.bearer.authorization tokens specified");
        }
        let bytes = URL_SAFE_NO_PAD.decode(encoded);
        let bytes = bytes.map_err(|_| "invalid base64.bearer.authorization token encoding")?;
        token = Some(String::from_utf8(bytes).map_err(|_| "invalid base64.bearer.authorization token")?);
    }
    match token {
        Some(token) if token.is_empty() => Ok(None),
        // The server must choose another one: the token is not to be sent back.
        Some(_) if !has_other => Err("missing additional subprotocol"),
        token => Ok(token),
    }
}

fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    values.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')).map(str::trim)
}

fn remove_websocket_token(headers: &mut HeaderMap) {
    let others: Vec<&str> =
        protocols(headers).filter(|protocol| !protocol.starts_with(BEARER_PROTOCOL)).collect();
    if others.len() == protocols(headers).count() {
        return;
    }
    match HeaderValue::from_str(&others.join(",")) {
        Ok(value) if !others.is_empty() => {
            headers.insert(header::SEC_WEBSOCKET_PROTOCOL, value);
        }
        _ => {
            headers.remove(header::SEC_WEBSOCKET_PROTOCOL);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Tokens;

    fn authenticator() -> RequestAuthenticator {
        let tokens = Tokens::new(vec![("good".to_owned(), User { name: "ann".into(), ..User::default() })]);
        RequestAuthenticator::new(Arc::new(tokens), Vec::new())
    }

    fn map(headers: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        map
    }

    async fn user(headers: &[(&'static str, &str)]) -> Result<String, String> {
        let presented = authenticator().take(&mut map(headers));
        let found = authenticator().authenticate(&Peer::Unknown, &presented, "/api").await;
        found.map(|found| found.user.name.clone()).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn bearer_token_is_the_second_word() {
        for good in ["Bearer good", "bearer good", "BEARER good extra", "  Bearer good "] {
            assert_eq!(user(&[("authorization", good)]).await.as_deref(), Ok("ann"), "{good}");
        }
        for none in ["Basic good", "Bearer", "good", "", "Bearer  good"] {
            assert_eq!(user(&[("authorization", none)]).await.as_deref(), Ok("system:anonymous"), "{none}");
        }
        assert_eq!(user(&[("authorization", "Bearer bad")]).await.unwrap_err(), INVALID_TOKEN);
    }

    #[tokio::test]
    async fn websocket_subprotocol_may_carry_the_token() {
        let upgrade = [("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")];
        let ask = async |protocols: &str| {
            let headers = [&upgrade[..], &[("sec-websocket-protocol", protocols)]].concat();
            user(&headers).await
        };
        let token = |text: &str| format!("{BEARER_PROTOCOL}{}", URL_SAFE_NO_PAD.encode(text));
        let good = token("good");
        assert_eq!(ask(&format!("{good}, channel.k8s.io")).await.as_deref(), Ok("ann"));
        assert_eq!(ask(&format!("channel.k8s.io, {}", token("bad"))).await.unwrap_err(), INVALID_TOKEN);
        assert_eq!(ask(&good).await.unwrap_err(), "missing additional subprotocol");
        assert!(ask(&format!("{good},{good},x")).await.unwrap_err().starts_with("multiple"));
        assert!(ask(&format!("{BEARER_PROTOCOL}*,x")).await.unwrap_err().starts_with("invalid base64"));
        assert_eq!(ask("channel.k8s.io").await.as_deref(), Ok("system:anonymous"));
        // Without an upgrade it is just a header.
        assert_eq!(
            user(&[("sec-websocket-protocol", &format!("{good},x"))]).await.as_deref(),
            Ok("system:anonymous")
        );
    }

    #[tokio::test]
    async fn credentials_do_not_outlive_authentication() {
        let mut headers = map(&[
            ("authorization", "Bearer good"),
            ("x-remote-user", "admin"),
            ("x-remote-group", "system:masters"),
            ("sec-websocket-protocol", &format!("a, {BEARER_PROTOCOL}Z29vZA, b")),
            ("impersonate-user", "bob"),
            ("impersonate-extra-a", "x"),
            ("impersonate-extra-a", "y"),
            ("connection", "upgrade"),
            ("upgrade", "websocket"),
            ("accept", "*/*"),
        ]);
        let presented = authenticator().take(&mut headers);
        let found = authenticator().authenticate(&Peer::Unknown, &presented, "/").await.unwrap();
        assert_eq!(found.user.name, "ann", "a client's own X-Remote-User counts nothing");
        let rest = [("sec-websocket-protocol", "a,b"), ("connection", "upgrade"), ("upgrade", "websocket")];
        assert_eq!(headers, map(&[&rest[..], &[("accept", "*/*")]].concat()));
        let impersonation =
            [("impersonate-user", "bob"), ("impersonate-extra-a", "x"), ("impersonate-extra-a", "y")];
        assert_eq!(presented.impersonation, map(&impersonation));
    }

    #[tokio::test]
    async fn anonymous_requests_may_be_limited_to_paths_or_refused() {
        let ask = async |anonymous: Anonymous, path: &str| {
            let authenticator = authenticator().with_anonymous(anonymous);
            authenticator.authenticate(&Peer::Unknown, &PresentedCredentials::default(), path).await.is_ok()
        };
        let livez = || Anonymous::Paths(["/livez".to_owned()].into());
        assert!(ask(livez(), "/livez").await);
        assert!(!ask(livez(), "/livez/ping").await && !ask(livez(), "/readyz").await);
        assert!(!ask(Anonymous::Disabled, "/livez").await);
        assert!(ask(Anonymous::Enabled, "/api").await);
    }

    proptest! {
        #[test]
        fn any_header_is_parsed_or_ignored(value in "[ -~]{0,80}") {
            let mut headers = map(&[("connection", "upgrade"), ("upgrade", "websocket")]);
            headers.append(header::AUTHORIZATION, value.parse().unwrap());
            headers.append(header::SEC_WEBSOCKET_PROTOCOL, value.parse().unwrap());
            let _ = (bearer_token(&headers), websocket_token(&headers));
            remove_websocket_token(&mut headers);
            prop_assert!(protocols(&headers).all(|protocol| !protocol.starts_with(BEARER_PROTOCOL)));
        }
    }
}
