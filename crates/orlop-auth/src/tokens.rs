//! Static bearer tokens: the administrator's, and those of a token file.

use std::{collections::HashMap, sync::Arc};

use async_trait::async_trait;
use sha2::{Digest, Sha256};

use crate::{
    User,
    authenticator::{Authenticated, Outcome, TokenAuthenticator},
};

/// Bearer tokens by their SHA-256, and their users.
#[derive(Clone, Default)]
pub struct Tokens(Arc<HashMap<TokenDigest, Arc<User>>>);

/// SHA-256 of a bearer token.
pub type TokenDigest = [u8; 32];

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Tokens stay out of logs.
        write!(f, "Tokens({})", self.0.len())
    }
}

/// A malformed token file. Does not contain its text, which may be a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenFileError {
    /// A record has fewer than three columns.
    #[error("line {line}: must have at least 3 columns (token, user name, user uid), found {columns}")]
    Columns {
        /// Line number, from one.
        line: usize,
        /// Number of columns.
        columns: usize,
    },
    /// A quote inside of a column that is not quoted.
    #[error("parse error on line {line}: bare \" in non-quoted field")]
    BareQuote {
        /// Line number, from one.
        line: usize,
    },
    /// A quoted column that does not end with a quote.
    #[error("parse error on line {line}: extraneous or missing \" in quoted-field")]
    Quote {
        /// Line number, from one.
        line: usize,
    },
}

impl Tokens {
    /// Returns tokens and their users.
    pub fn new(tokens: Vec<(String, User)>) -> Self {
        Self::from_digests(tokens.into_iter().map(|(token, user)| (Self::digest(&token), user)).collect())
    }

    /// Returns tokens by their digests. Of two users of one token the last is taken.
    pub fn from_digests(digests: Vec<(TokenDigest, User)>) -> Self {
        Self(Arc::new(digests.into_iter().map(|(digest, user)| (digest, Arc::new(user))).collect()))
    }

    /// Returns the digest of a token. Tokens are random and long, so that a fast hash without salt is enough.
    pub fn digest(token: &str) -> TokenDigest {
        Sha256::digest(token).into()
    }

    /// Parses a file in the format of kube-apiserver's `--token-auth-file`, exactly as it does: a record per token
    /// with its user, uid and, optionally, a quoted list of groups. Spaces are part of columns, records with an
    /// empty token are left out.
    pub fn parse(text: &str) -> Result<Vec<(String, User)>, TokenFileError> {
        let mut tokens = Vec::new();
        for (line, record) in records(text)? {
            let [token, name, uid, rest @ ..] = record.as_slice() else {
                return Err(TokenFileError::Columns { line, columns: record.len() });
            };
            if token.is_empty() {
                tracing::warn!(line, "a record of the token file has an empty token");
                continue;
            }
            let groups = rest.first().map(|groups| groups.split(',').map(str::to_owned).collect());
            let user = User {
                name: name.clone(),
                uid: uid.clone(),
                groups: groups.unwrap_or_default(),
                ..User::default()
            };
            tokens.push((token.clone(), user));
        }
        Ok(tokens)
    }

    /// Returns the user of a token.
    pub fn user(&self, token: &str) -> Option<&Arc<User>> {
        // Comparing digests leaks nothing of the token by timing.
        self.0.get(&Self::digest(token))
    }
}

#[async_trait]
impl TokenAuthenticator for Tokens {
    async fn authenticate(&self, token: &str, _audiences: &[String]) -> Outcome {
        let user = self.user(token);
        Ok(user.map(|user| Authenticated { user: user.clone(), ..Authenticated::default() }))
    }
}

/// Splits comma-separated values (RFC 4180, as Go reads them) into records with their line numbers. Empty lines are
/// skipped.
fn records(text: &str) -> Result<Vec<(usize, Vec<String>)>, TokenFileError> {
    let mut records = Vec::new();
    let (mut line, mut rest) = (0, text);
    while !rest.is_empty() {
        line += 1;
        if let Some(next) = rest.strip_prefix("\r\n").or_else(|| rest.strip_prefix('\n')) {
            rest = next;
            continue;
        }
        let (first_line, mut record) = (line, Vec::new());
        loop {
            let (column, after) = match rest.strip_prefix('"') {
                Some(quoted) => quoted_column(quoted, &mut line)?,
                None => {
                    let end = rest.find([',', '\n']).unwrap_or(rest.len());
                    let (column, after) = rest.split_at(end);
                    let column = if after.starts_with(',') { column } else { column.trim_end_matches('\r') };
                    if column.contains('"') {
                        return Err(TokenFileError::BareQuote { line });
                    }
                    (column.to_owned(), after)
                }
            };
            record.push(column);
            match after.strip_prefix(',') {
                Some(next) => rest = next,
                None => {
                    rest = after.strip_prefix('\n').unwrap_or(after);
                    break;
                }
            }
        }
        records.push((first_line, record));
    }
    Ok(records)
}

/// Reads a column after its first quote. Returns what follows it: a comma, a line feed or nothing.
fn quoted_column<'a>(text: &'a str, line: &mut usize) -> Result<(String, &'a str), TokenFileError> {
    let (mut column, mut rest) = (String::new(), text);
    loop {
        let Some((part, after)) = rest.split_once('"') else {
            return Err(TokenFileError::Quote { line: *line });
        };
        // Go reads line by line, and takes the end of each for a line feed.
        column.push_str(&part.replace("\r\n", "\n"));
        *line += part.matches('\n').count();
        match after.strip_prefix('"') {
            Some(next) => {
                column.push('"');
                rest = next;
            }
            None => {
                let end = after.strip_prefix('\r').filter(|end| end.is_empty() || end.starts_with('\n'));
                let after = end.unwrap_or(after);
                if after.is_empty() || after.starts_with([',', '\n']) {
                    return Ok((column, after));
                }
                return Err(TokenFileError::Quote { line: *line });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn user(name: &str, uid: &str, groups: &[&str]) -> User {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        User { name: name.to_owned(), uid: uid.to_owned(), groups, ..User::default() }
    }

    #[test]
    fn token_file_parses_as_in_kube_apiserver() {
        let text =
            "t1,ann,1\r\n\n\"t\"\"2\",bob , 2,\"dev,ops,\"\n,nobody,3\nt3,c,4,\"\",ignored\nt4,\"d\ne\",5";
        let read = Tokens::parse(text).unwrap();
        let expected = [
            ("t1", user("ann", "1", &[])),
            ("t\"2", user("bob ", " 2", &["dev", "ops", ""])),
            ("t3", user("c", "4", &[""])),
            ("t4", user("d\ne", "5", &[])),
        ];
        assert_eq!(read, expected.map(|(token, user)| (token.to_owned(), user)));
        let tokens = Tokens::new(read);
        assert_eq!(tokens.user("t1").map(|user| user.name.as_str()), Some("ann"));
        assert_eq!(tokens.user("t"), None);
        assert_eq!(tokens.user(""), None);
        assert_eq!(format!("{tokens:?}"), "Tokens(4)");
    }

    #[test]
    fn malformed_token_files_are_refused() {
        use TokenFileError::{BareQuote, Columns, Quote};
        for (text, error) in [
            ("only", Columns { line: 1, columns: 1 }),
            ("a,b,c\n\nx,y", Columns { line: 3, columns: 2 }),
            ("t,u,1, \"a,b\"", BareQuote { line: 1 }),
            ("t,u,1,\"open", Quote { line: 1 }),
            ("t,u,1,\"a\"b", Quote { line: 1 }),
        ] {
            assert_eq!(Tokens::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn last_user_of_a_token_is_taken() {
        let tokens = Tokens::new(Tokens::parse("t,a,1\nt,b,2").unwrap());
        assert_eq!(tokens.user("t").map(|user| user.name.as_str()), Some("b"));
    }

    proptest! {
        #[test]
        fn any_text_parses_or_is_refused(text in "[a-c,\"\r\n ]{0,60}") {
            let _ = Tokens::parse(&text);
        }
    }
}
