//! The store's errors as etcd's: the codes and the very texts by which clients tell them apart.
//!
//! clientv3 turns a status back into an error by its text, and the API server asks for those errors, so the
//! texts below are part of the protocol. An error that etcd does not have keeps our own words.

use orlop_store::Error;
use tonic::{Code, Status};

/// An error of the protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known(pub(crate) Code, pub(crate) &'static str);

impl From<Known> for Status {
    fn from(Known(code, text): Known) -> Self {
        Status::new(code, text)
    }
}

pub(crate) const EMPTY_KEY: Known = Known(Code::InvalidArgument, "etcdserver: key is not provided");
pub(crate) const KEY_NOT_FOUND: Known = Known(Code::InvalidArgument, "etcdserver: key not found");
pub(crate) const VALUE_PROVIDED: Known = Known(Code::InvalidArgument, "etcdserver: value is provided");
pub(crate) const LEASE_PROVIDED: Known = Known(Code::InvalidArgument, "etcdserver: lease is provided");
pub(crate) const TOO_MANY_OPS: Known =
    Known(Code::InvalidArgument, "etcdserver: too many operations in txn request");
pub(crate) const DUPLICATE_KEY: Known =
    Known(Code::InvalidArgument, "etcdserver: duplicate key given in txn request");
pub(crate) const INVALID_SORT: Known = Known(Code::InvalidArgument, "etcdserver: invalid sort option");
pub(crate) const COMPACTED: Known =
    Known(Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted");
pub(crate) const FUTURE_REVISION: Known =
    Known(Code::OutOfRange, "etcdserver: mvcc: required revision is a future revision");
pub(crate) const NO_SPACE: Known =
    Known(Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded");
pub(crate) const LEASE_NOT_FOUND: Known = Known(Code::NotFound, "etcdserver: requested lease not found");
pub(crate) const LEASE_EXISTS: Known = Known(Code::FailedPrecondition, "etcdserver: lease already exists");
pub(crate) const LEASE_TTL_TOO_LARGE: Known = Known(Code::OutOfRange, "etcdserver: too large lease TTL");
pub(crate) const REQUEST_TOO_LARGE: Known = Known(Code::InvalidArgument, "etcdserver: request is too large");
pub(crate) const STOPPED: Known = Known(Code::Unavailable, "etcdserver: server stopped");
pub(crate) const CORRUPT: Known = Known(Code::DataLoss, "etcdserver: corrupt cluster");
pub(crate) const MEMBER_NOT_FOUND: Known = Known(Code::NotFound, "etcdserver: member not found");
pub(crate) const BAD_LEADER_TRANSFEREE: Known =
    Known(Code::FailedPrecondition, "etcdserver: bad leader transferee");
/// What etcd answers when a proposal was not decided in time: clients know that it may have happened.
pub(crate) const TIMED_OUT: Known = Known(Code::Unavailable, "etcdserver: request timed out");
pub(crate) const AUTH_NOT_ENABLED: Known =
    Known(Code::FailedPrecondition, "etcdserver: authentication is not enabled");
pub(crate) const ROOT_USER_NOT_EXIST: Known =
    Known(Code::FailedPrecondition, "etcdserver: root user does not exist");
pub(crate) const USER_NOT_FOUND: Known = Known(Code::FailedPrecondition, "etcdserver: user name not found");
pub(crate) const ROLE_NOT_FOUND: Known = Known(Code::FailedPrecondition, "etcdserver: role name not found");

/// What the peer is told of a store's error; what only the operator should know goes to the log.
pub(crate) fn status(error: Error) -> Status {
    match error {
        Error::Expired { .. } => COMPACTED.into(),
        Error::FutureRevision { .. } => FUTURE_REVISION.into(),
        Error::NotFound { .. } => KEY_NOT_FOUND.into(),
        Error::DuplicateKey { .. } => DUPLICATE_KEY.into(),
        Error::LeaseNotFound { .. } => LEASE_NOT_FOUND.into(),
        Error::LeaseExists { .. } => LEASE_EXISTS.into(),
        Error::Full(_) => NO_SPACE.into(),
        Error::AmbiguousCommit(_) => TIMED_OUT.into(),
        Error::TooLarge { .. } => {
            tracing::debug!(%error, "request refused");
            REQUEST_TOO_LARGE.into()
        }
        Error::Corrupt { .. } => {
            tracing::error!(%error, "damaged row");
            CORRUPT.into()
        }
        Error::Invalid(text) => Status::invalid_argument(format!("orlop: {text}")),
        error => {
            tracing::warn!(%error, "request failed");
            Status::unavailable(format!("orlop: {error}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_errors_that_clients_act_on_have_etcds_codes_and_texts() {
        let compacted = status(Error::Expired { compacted: 7 });
        assert_eq!(compacted.code(), Code::OutOfRange);
        assert_eq!(compacted.message(), "etcdserver: mvcc: required revision has been compacted");
        let full = status(Error::Full("no room".into()));
        assert_eq!((full.code(), full.message()), (Code::ResourceExhausted, NO_SPACE.1));
        let lease = status(Error::LeaseNotFound { lease: 3 });
        assert_eq!((lease.code(), lease.message()), (Code::NotFound, LEASE_NOT_FOUND.1));
    }
}
