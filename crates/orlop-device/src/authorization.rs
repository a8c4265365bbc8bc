//! Who is calling, and what it may do.
//!
//! Everyone who can connect may read. A write needs one of: a permitted user or group at the other end of
//! the unix socket, a client certificate that the server's client CA vouches for, or a bearer token. The
//! kernel says who is behind a unix socket, TLS who is behind a certificate; neither can be made up.

use std::{fmt, net::SocketAddr, sync::Arc};

use http::{HeaderMap, Request, header::AUTHORIZATION};

use super::connection::Peer;
use crate::error::Error;

/// Who is at the other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A process on this machine, as the kernel tells it.
    Process { uid: u32, gid: u32, pid: Option<i32> },
    /// Somebody on the network, with the subject of its certificate if it showed a valid one.
    Network { address: SocketAddr, certificate: Option<Arc<str>> },
    /// Nothing is known.
    Unknown,
}

impl Caller {
    pub(crate) fn of<B>(request: &Request<B>) -> Self {
        request.extensions().get::<Peer>().map_or(Self::Unknown, |peer| peer.caller.clone())
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

/// Who may write.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Users that may write over the unix socket.
    pub uids: Vec<u32>,
    /// Groups that may write over the unix socket, by the process's own group.
    pub gids: Vec<u32>,
    /// Whether everybody may write over the unix socket, its mode being protection enough.
    pub any_process: bool,
    /// Tokens, one of which a caller from the network can show.
    pub tokens: Vec<Token>,
}

/// A secret that a log must not show.
#[derive(Clone)]
pub struct Token(pub String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Policy {
    /// Lets a write pass, or says why not.
    pub(crate) fn allow_write(&self, caller: &Caller, headers: &HeaderMap) -> Result<(), Error> {
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
                Some(shown) if self.tokens.iter().any(|token| same(token.0.as_bytes(), shown)) => Ok(()),
                Some(_) => Err(Error::Unauthenticated("the token is not one of this server's".into())),
            },
        }
    }
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(token)
}

/// Compares without telling by its duration how much agreed.
fn same(secret: &[u8], shown: &[u8]) -> bool {
    let differences = secret.iter().zip(shown).fold(0, |sum, (a, b)| sum | (a ^ b));
    secret.len() == shown.len() && std::hint::black_box(differences) == 0
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
    fn writes_need_a_permitted_user_group_token_or_certificate() {
        let policy =
            Policy { uids: vec![7], gids: vec![8], any_process: false, tokens: vec![Token("secret".into())] };
        let process = |uid, gid| Caller::Process { uid, gid, pid: None };
        let none = HeaderMap::new();
        assert!(policy.allow_write(&process(7, 1), &none).is_ok());
        assert!(policy.allow_write(&process(1, 8), &none).is_ok());
        assert!(matches!(policy.allow_write(&process(8, 7), &none), Err(Error::Forbidden(_))));
        // A token is for the network; it does not lift what the kernel says.
        assert!(policy.allow_write(&process(8, 7), &headers("Bearer secret")).is_err());
        assert!(policy.allow_write(&network(Some("CN=agent")), &none).is_ok());
        assert!(policy.allow_write(&network(None), &headers("bearer secret")).is_ok());
        for wrong in ["Bearer secre", "Bearer secrets", "Basic secret", "Bearer ", "Bearer"] {
            let refused = policy.allow_write(&network(None), &headers(wrong));
            assert!(matches!(refused, Err(Error::Unauthenticated(_))), "{wrong}");
        }
        assert!(!format!("{policy:?}").contains("secret"));
    }
}
