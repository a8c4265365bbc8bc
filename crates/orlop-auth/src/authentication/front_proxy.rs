//! Front proxies: a proxy with a certificate names the user in headers.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use orlop_net::ClientVerifier;

use super::client_certificate::PeerCertificate;
use crate::{User, headers::unescape_key};

/// A header's name is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrontProxyError {
    /// The name is empty.
    #[error("empty header {0:?}")]
    Empty(String),
    /// The name has a character that header names do not have.
    #[error("invalid header {0:?}")]
    Invalid(String),
}

/// Names of the headers that a front proxy sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderNames {
    users: Vec<HeaderName>,
    uids: Vec<HeaderName>,
    groups: Vec<HeaderName>,
    /// In lower case.
    extra_prefixes: Vec<String>,
}

impl HeaderNames {
    /// Returns the names that Kubernetes' aggregator uses.
    pub fn standard() -> Self {
        Self {
            users: vec![HeaderName::from_static("x-remote-user")],
            uids: vec![HeaderName::from_static("x-remote-uid")],
            groups: vec![HeaderName::from_static("x-remote-group")],
            extra_prefixes: vec!["x-remote-extra-".to_owned()],
        }
    }

    /// Returns names of the caller's choice.
    pub fn new(
        users: &[String],
        uids: &[String],
        groups: &[String],
        extra_prefixes: &[String],
    ) -> Result<Self, FrontProxyError> {
        let name = |name: &String| match name.trim() {
            "" => Err(FrontProxyError::Empty(name.clone())),
            trimmed => trimmed.parse::<HeaderName>().map_err(|_| FrontProxyError::Invalid(name.clone())),
        };
        let names = |all: &[String]| all.iter().map(name).collect::<Result<Vec<_>, _>>();
        let prefixes = names(extra_prefixes)?;
        Ok(Self {
            users: names(users)?,
            uids: names(uids)?,
            groups: names(groups)?,
            extra_prefixes: prefixes.iter().map(|prefix| prefix.as_str().to_owned()).collect(),
        })
    }

    /// Returns true for a header that a front proxy sets.
    pub fn contains(&self, name: &HeaderName) -> bool {
        let is_extra = |prefix: &String| name.as_str().starts_with(prefix.as_str());
        [&self.users, &self.uids, &self.groups].iter().any(|names| names.contains(name))
            || self.extra_prefixes.iter().any(is_extra)
    }

    /// Returns the user in the headers, if there is one.
    fn user(&self, headers: &HeaderMap) -> Option<User> {
        let first = |names: &[HeaderName]| {
            names
                .iter()
                .map(|name| headers.get(name).map(text).unwrap_or_default())
                .find(|value| !value.is_empty())
        };
        let mut user =
            User { name: first(&self.users)?, uid: first(&self.uids).unwrap_or_default(), ..User::default() };
        for name in &self.groups {
            user.groups.extend(headers.get_all(name).iter().map(text).filter(|group| !group.is_empty()));
        }
        for prefix in &self.extra_prefixes {
            for (name, value) in headers {
                if let Some(key) = name.as_str().strip_prefix(prefix.as_str()) {
                    user.extra.entry(unescape_key(key)).or_default().push(text(value));
                }
            }
        }
        Some(user)
    }
}

/// A header's value; bytes that are not UTF-8 are replaced.
fn text(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

/// Trusts the headers of proxies with a certificate of certain CAs.
#[derive(Debug)]
pub struct FrontProxy {
    verifier: Arc<ClientVerifier>,
    /// Common names of proxies; empty for all.
    allowed_names: Vec<String>,
    headers: HeaderNames,
}

impl FrontProxy {
    /// Returns an authenticator.
    pub fn new(verifier: Arc<ClientVerifier>, allowed_names: Vec<String>, headers: HeaderNames) -> Self {
        Self { verifier, allowed_names, headers }
    }

    /// Returns the names of headers.
    pub fn headers(&self) -> &HeaderNames {
        &self.headers
    }

    /// Returns the user that a proxy names. `None` if it names none; an error if the client is not a proxy.
    pub fn user(
        &self,
        certificate: &PeerCertificate,
        headers: &HeaderMap,
        now: i64,
    ) -> Result<Option<User>, String> {
        let name = certificate.proxy_name(&self.verifier, now)?;
        if !self.allowed_names.is_empty() && !self.allowed_names.iter().any(|allowed| allowed == name) {
            return Err(format!("x509: subject with cn={name} is not in the allowed list"));
        }
        Ok(self.headers.user(headers))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn map(headers: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        map
    }

    #[test]
    fn user_is_read_from_headers() {
        let headers = map(&[
            ("x-remote-user", "ann"),
            ("x-remote-uid", "1"),
            ("x-remote-group", "a"),
            ("x-remote-group", ""),
            ("x-remote-group", "b"),
            ("x-remote-extra-example.com%2fscope", "x"),
            ("x-remote-extra-example.com%2Fscope", "y"),
        ]);
        let user = HeaderNames::standard().user(&headers).unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("ann", "1"));
        assert_eq!(user.groups, ["a", "b"]);
        assert_eq!(user.extra["example.com/scope"], ["x", "y"]);
        assert_eq!(HeaderNames::standard().user(&map(&[("x-remote-group", "system:masters")])), None);
        let custom =
            HeaderNames::new(&["X-A".to_owned(), " X-B ".to_owned()], &[], &[], &["X-E-".to_owned()])
                .unwrap();
        let user = custom.user(&map(&[("x-a", ""), ("x-b", "bob"), ("x-e-k", "v")])).unwrap();
        assert_eq!((user.name.as_str(), user.extra["k"][0].as_str()), ("bob", "v"));
        for bad in ["", "  ", "a b"] {
            assert!(HeaderNames::new(&[bad.to_owned()], &[], &[], &[]).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn headers_of_identity_are_recognized() {
        let names = HeaderNames::standard();
        let is = |name: &str| names.contains(&name.parse().unwrap());
        for name in
            ["X-Remote-User", "x-remote-uid", "X-REMOTE-GROUP", "x-remote-extra-", "x-remote-extra-a%2fb"]
        {
            assert!(is(name), "{name}");
        }
        assert!(!is("x-remote") && !is("accept"));
    }

    proptest! {
        #[test]
        fn any_extra_header_is_recognized(suffix in "[a-z0-9%-]{0,12}", value in "[ -~]{0,20}") {
            let mut headers = HeaderMap::new();
            let name: HeaderName = format!("X-Remote-Extra-{suffix}").parse().unwrap();
            headers.append(name.clone(), value.parse().unwrap());
            let _ = HeaderNames::standard().user(&headers);
            prop_assert!(HeaderNames::standard().contains(&name));
        }
    }
}
