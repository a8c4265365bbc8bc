//! Authentication of callers and authorization of writes.
//!
//! Everyone who can connect may read. A write needs one of: an allowed user or group of the process on the unix socket, a
//! client certificate signed by the client CA, or a bearer token. The kernel identifies the process on a unix socket, TLS
//! the holder of a certificate; a client cannot forge either.

use std::{fmt, net::SocketAddr, sync::Arc};

use http::{HeaderMap, Request, header::AUTHORIZATION};

use crate::error::Error;

/// The identity of a connection's client, in the extensions of its requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A process on this machine, identified by the kernel.
    Process { uid: u32, gid: u32, pid: Option<i32> },
    /// A network client, with the subject of its verified certificate, if any.
    Network { address: SocketAddr, certificate: Option<Arc<str>> },
    /// Unidentified.
    Unknown,
}

impl Caller {
    /// Returns the caller of a request.
    pub(crate) fn of<B>(request: &Request<B>) -> Self {
        request.extensions().get::<Self>().cloned().unwrap_or(Self::Unknown)
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { uid, gid, pid: Some(pid) } => write!(f, "uid={uid} gid={gid} pid={pid}"),
            Self::Process { uid, gid, pid: None } => write!(f, "uid={uid} gid={gid}"),
            Self::Network { address, certificate: Some(subject) } => write!(f, "{address} ({subject})"),
            Self::Network { address, certificate: None } => write!(f, "{address}"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

/// Authorization policy for writes.
#[derive(Clone, Debug, Default)]
pub struct WritePolicy {
    /// Users allowed to write over the unix socket.
    pub uids: Vec<u32>,
    /// Groups allowed to write over the unix socket, by the primary group of the process.
    pub gids: Vec<u32>,
    /// Allows every process that can open the unix socket to write.
    pub any_process: bool,
    /// Bearer tokens that allow a network client to write.
    pub tokens: Vec<Token>,
}

/// A bearer token. Its `Debug` output hides the secret.
#[derive(Clone)]
pub struct Token(pub String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl WritePolicy {
    /// Authorizes a write.
    pub(crate) fn authorize_write(&self, caller: &Caller, headers: &HeaderMap) -> Result<(), Error> {
        match caller {
            Caller::Process { uid, gid, .. } => {
                if self.any_process || self.uids.contains(uid) || self.gids.contains(gid) {
                    return Ok(());
                }
                Err(Error::Forbidden(format!("user {uid} (group {gid}) may read but not write")))
            }
            Caller::Network { certificate: Some(_), .. } => Ok(()),
            Caller::Network { certificate: None, .. } | Caller::Unknown => match bearer(headers) {
                None => Err(Error::Unauthenticated("a write needs a client certificate or a token".into())),
                Some(presented)
                    if self.tokens.iter().any(|token| constant_time_eq(token.0.as_bytes(), presented)) =>
                {
                    Ok(())
                }
                Some(_) => Err(Error::Unauthenticated("the token is not one of this server's".into())),
            },
        }
    }
}

/// Returns the bearer token of a request.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(token)
}

/// Compares in constant time.
fn constant_time_eq(secret: &[u8], presented: &[u8]) -> bool {
    let differences = secret.iter().zip(presented).fold(0, |sum, (a, b)| sum | (a ^ b));
    secret.len() == presented.len() && std::hint::black_box(differences) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(certificate: Option<&str>) -> Caller {
        Caller::Network { address: ([127, 0, 0, 1], 1).into(), certificate: certificate.map(Into::into) }
    }

    fn headers(authorization: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, authorization.parse().unwrap())])
    }

    #[test]
    fn write_requires_an_allowed_user_group_token_or_certificate() {
        let policy = WritePolicy {
            uids: vec![7],
            gids: vec![8],
            any_process: false,
            tokens: vec![Token("secret".into())],
        };
        let process = |uid, gid| Caller::Process { uid, gid, pid: None };
        let none = HeaderMap::new();
        assert!(policy.authorize_write(&process(7, 1), &none).is_ok());
        assert!(policy.authorize_write(&process(1, 8), &none).is_ok());
        assert!(matches!(policy.authorize_write(&process(8, 7), &none), Err(Error::Forbidden(_))));
        // A token is for network clients; it does not override the kernel's credentials.
        assert!(policy.authorize_write(&process(8, 7), &headers("Bearer secret")).is_err());
        assert!(policy.authorize_write(&network(Some("CN=agent")), &none).is_ok());
        assert!(policy.authorize_write(&network(None), &headers("bearer secret")).is_ok());
        for wrong in ["Bearer secre", "Bearer secrets", "Basic secret", "Bearer ", "Bearer"] {
            let refused = policy.authorize_write(&network(None), &headers(wrong));
            assert!(matches!(refused, Err(Error::Unauthenticated(_))), "{wrong}");
        }
        assert!(!format!("{policy:?}").contains("secret"));
    }
}
