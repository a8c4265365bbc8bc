//! Resource versions of requests, and the revision that a list asks for.

use std::num::IntErrorKind;

use orlop_api::{continue_token::ContinueToken, status::Status};
use orlop_store::Revision;

use super::options::check_list;
use orlop_api::query::Query;

/// Parses a resourceVersion; `None` for "" and "0".
pub(crate) fn parse(text: &str) -> Result<Option<Revision>, Status> {
    if text.is_empty() {
        return Ok(None);
    }
    let why = match text.parse::<u64>() {
        Ok(0) => return Ok(None),
        // A version beyond the revision range is waited for like any other in the future.
        Ok(revision) => return Ok(Some(Revision::try_from(revision).unwrap_or(Revision::MAX))),
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => "value out of range",
        Err(_) => "invalid syntax",
    };
    Err(Status::bad_request(format!(
        "invalid resource version: resourceVersion: Invalid value: {text:?}: \
         strconv.ParseUint: parsing {text:?}: {why}"
    )))
}

/// The revision that a list is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The newest.
    Newest,
    /// Any that is not older than this.
    NotOlderThan(Revision),
    /// This revision.
    Exactly(Revision),
    /// A continue token.
    Continued(ContinueToken),
}

impl Moment {
    /// Parses the revision that a list asks for, by the table in Kubernetes' documentation.
    pub(crate) fn of(query: &Query) -> Result<Self, Status> {
        let (version, matching, token) =
            (query.text("resourceVersion"), query.text("resourceVersionMatch"), query.text("continue"));
        check_list(query, false)?;
        if !token.is_empty() {
            let token = ContinueToken::decode(token)
                .map_err(|error| Status::bad_request(format!("invalid continue token: {error}")))?;
            if !matches!(version, "" | "0") {
                return Err(Status::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            return Ok(Self::Continued(token));
        }
        let limited = query.number("limit")?.unwrap_or(0) > 0;
        Ok(match (parse(version)?, matching) {
            (None, _) => Self::Newest,
            (Some(revision), "Exact") => Self::Exactly(revision),
            (Some(revision), "") if limited => Self::Exactly(revision),
            (Some(revision), _) => Self::NotOlderThan(revision),
        })
    }
}
