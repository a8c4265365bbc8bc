//! Resource versions: the store's revisions as clients see them.
//!
//! On disk, and in a database shared with `orlop serve`, they are equal. An in-memory store restarts at revision 1 with
//! its process, and a client that resumes with a version of the previous process would miss events. So in memory versions
//! are offset by the start time in milliseconds: every version of a previous process is smaller than any of this one, and
//! is reported as compacted, which makes clients list again.

use std::time::{SystemTime, UNIX_EPOCH};

use orlop_store::{Endpoint, Revision};

use crate::error::Error;

/// The mapping between revisions and resource versions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Versions {
    offset: i64,
}

impl Versions {
    pub(crate) fn of(endpoint: &Endpoint) -> Self {
        let offset = match endpoint {
            Endpoint::Memory => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                i64::try_from(since.as_millis()).unwrap_or_default()
            }
            _ => 0,
        };
        Self { offset }
    }

    pub(crate) fn text(self, revision: Revision) -> String {
        (revision + self.offset).to_string()
    }

    /// Parses a version. `None` for an empty one or "0", which mean "any".
    pub(crate) fn parse(self, text: &str) -> Result<Option<Revision>, Error> {
        if text.is_empty() || text == "0" {
            return Ok(None);
        }
        // Only the canonical form: "+1" and "01" would not equal the server's own text.
        let version: i64 = match text.parse() {
            Ok(version) if text.starts_with(|first: char| matches!(first, '1'..='9')) => version,
            _ => return Err(Error::BadRequest(format!("resource version {text:?} is not one of this API"))),
        };
        if version <= self.offset {
            return Err(Error::Expired(format!(
                "too old resource version: {version} is from before this server started: list again"
            )));
        }
        Ok(Some(version - self.offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_a_previous_process_are_expired() {
        let on_disk = Versions::of(&Endpoint::Sqlite("x".into()));
        assert_eq!(on_disk.text(7), "7");
        assert_eq!(on_disk.parse("7").unwrap(), Some(7));
        let (before, after) = (Versions { offset: 1000 }, Versions { offset: 2000 });
        let old = before.text(500);
        assert!(matches!(after.parse(&old), Err(Error::Expired(_))));
        assert_eq!(after.parse(&after.text(3)).unwrap(), Some(3));
        for any in ["", "0"] {
            assert_eq!(after.parse(any).unwrap(), None);
        }
        for bad in ["x", "-1", "+5000", "05000", "5000 ", "99999999999999999999"] {
            assert!(matches!(after.parse(bad), Err(Error::BadRequest(_))), "{bad}");
        }
    }
}
