//! Static bearer tokens: the administrator's, and those of a token file.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::User;

/// Bearer tokens by their SHA-256, and their users.
#[derive(Clone, Default)]
pub struct Tokens(Arc<Vec<(TokenDigest, User)>>);

/// SHA-256 of a bearer token.
pub type TokenDigest = [u8; 32];

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Tokens stay out of logs.
        write!(f, "Tokens({})", self.0.len())
    }
}

/// A malformed line of a token file. Does not contain the line, which may be a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is not token,user,uid,\"group1,group2\"")]
pub struct BadLine {
    /// Line number, from one.
    pub line: usize,
}

impl Tokens {
    /// Returns tokens and their users.
    pub fn new(tokens: Vec<(String, User)>) -> Self {
        Self::from_digests(tokens.into_iter().map(|(token, user)| (Self::digest(&token), user)).collect())
    }

    /// Returns tokens by their digests.
    pub fn from_digests(digests: Vec<(TokenDigest, User)>) -> Self {
        Self(Arc::new(digests))
    }

    /// Returns the digest of a token. Tokens are random and long, so that a fast hash without salt is enough.
    pub fn digest(token: &str) -> TokenDigest {
        Sha256::digest(token).into()
    }

    /// Parses a file in the format of kube-apiserver's `--token-auth-file`: a line per token with its user, uid and,
    /// optionally, a quoted list of groups.
    pub fn parse(text: &str) -> Result<Vec<(String, User)>, BadLine> {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        lines
            .map(|(index, line)| {
                let columns = columns(line).ok_or(BadLine { line: index + 1 })?;
                let [token, name, _uid, rest @ ..] = columns.as_slice() else {
                    return Err(BadLine { line: index + 1 });
                };
                if token.is_empty() || name.is_empty() {
                    return Err(BadLine { line: index + 1 });
                }
                let groups = rest.first().map(String::as_str).unwrap_or_default().split(',');
                let groups = groups.map(str::trim).filter(|group| !group.is_empty()).map(str::to_owned);
                Ok((token.clone(), User::authenticated(name.clone(), groups)))
            })
            .collect()
    }

    /// Returns the user of a token.
    pub fn user(&self, token: &str) -> Option<User> {
        // Comparing digests leaks nothing of the token by timing.
        let digest = Self::digest(token);
        self.0.iter().find(|(known, _)| *known == digest).map(|(_, user)| user.clone())
    }
}

/// Splits a line of comma-separated values; `None` if a quote is not closed.
fn columns(line: &str) -> Option<Vec<String>> {
    let (mut columns, mut quoted) = (vec![String::new()], false);
    let mut characters = line.trim().chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                columns.last_mut()?.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => columns.push(String::new()),
            ' ' if !quoted && columns.last()?.is_empty() => {}
            other => columns.last_mut()?.push(other),
        }
    }
    (!quoted).then_some(columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_file_parses_as_in_kube_apiserver() {
        let read = Tokens::parse("t1,ann,1\n\nt2, bob, 2, \"dev,ops\"\n").unwrap();
        assert_eq!(read[0], ("t1".to_owned(), User::authenticated("ann", [])));
        let bob = User::authenticated("bob", ["dev".to_owned(), "ops".to_owned()]);
        assert_eq!(read[1], ("t2".to_owned(), bob.clone()));
        let tokens = Tokens::new(read);
        assert_eq!(tokens.user("t2"), Some(bob));
        assert_eq!(tokens.user("t"), None);
        assert_eq!(format!("{tokens:?}"), "Tokens(2)");
        for (text, line) in [("only", 1), ("a,b,c\nx,y", 2), (",user,uid", 1), ("t,u,1,\"open", 1)] {
            assert_eq!(Tokens::parse(text), Err(BadLine { line }), "{text}");
        }
    }
}
