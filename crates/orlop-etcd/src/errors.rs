//! etcd's errors: codes and texts.
//!
//! clientv3 maps a status back to an error by its text, and kube-apiserver compares with those errors, so the texts are
//! part of the protocol. An error that etcd does not have begins with `orlop:`.

use orlop_store::Error;
use tonic::{Code, Status};

/// An error of etcd's protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EtcdError(pub(crate) Code, pub(crate) &'static str);

impl From<EtcdError> for Status {
    fn from(EtcdError(code, text): EtcdError) -> Self {
        Status::new(code, text)
    }
}

pub(crate) const EMPTY_KEY: EtcdError = EtcdError(Code::InvalidArgument, "etcdserver: key is not provided");
pub(crate) const KEY_NOT_FOUND: EtcdError = EtcdError(Code::InvalidArgument, "etcdserver: key not found");
pub(crate) const VALUE_PROVIDED: EtcdError =
    EtcdError(Code::InvalidArgument, "etcdserver: value is provided");
pub(crate) const LEASE_PROVIDED: EtcdError =
    EtcdError(Code::InvalidArgument, "etcdserver: lease is provided");
pub(crate) const TOO_MANY_OPS: EtcdError =
    EtcdError(Code::InvalidArgument, "etcdserver: too many operations in txn request");
pub(crate) const DUPLICATE_KEY: EtcdError =
    EtcdError(Code::InvalidArgument, "etcdserver: duplicate key given in txn request");
pub(crate) const INVALID_SORT: EtcdError =
    EtcdError(Code::InvalidArgument, "etcdserver: invalid sort option");
pub(crate) const COMPACTED: EtcdError =
    EtcdError(Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted");
pub(crate) const FUTURE_REVISION: EtcdError =
    EtcdError(Code::OutOfRange, "etcdserver: mvcc: required revision is a future revision");
pub(crate) const NO_SPACE: EtcdError =
    EtcdError(Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded");
pub(crate) const LEASE_NOT_FOUND: EtcdError =
    EtcdError(Code::NotFound, "etcdserver: requested lease not found");
pub(crate) const LEASE_EXISTS: EtcdError =
    EtcdError(Code::FailedPrecondition, "etcdserver: lease already exists");
pub(crate) const LEASE_TTL_TOO_LARGE: EtcdError =
    EtcdError(Code::OutOfRange, "etcdserver: too large lease TTL");
pub(crate) const REQUEST_TOO_LARGE: EtcdError =
    EtcdError(Code::InvalidArgument, "etcdserver: request is too large");
pub(crate) const STOPPED: EtcdError = EtcdError(Code::Unavailable, "etcdserver: server stopped");
pub(crate) const CORRUPT: EtcdError = EtcdError(Code::DataLoss, "etcdserver: corrupt cluster");
pub(crate) const MEMBER_NOT_FOUND: EtcdError = EtcdError(Code::NotFound, "etcdserver: member not found");
pub(crate) const BAD_LEADER_TRANSFEREE: EtcdError =
    EtcdError(Code::FailedPrecondition, "etcdserver: bad leader transferee");
/// Returned for an ambiguous commit. Clients know that the write may have happened.
pub(crate) const TIMED_OUT: EtcdError = EtcdError(Code::Unavailable, "etcdserver: request timed out");
pub(crate) const AUTH_NOT_ENABLED: EtcdError =
    EtcdError(Code::FailedPrecondition, "etcdserver: authentication is not enabled");
pub(crate) const ROOT_USER_NOT_EXIST: EtcdError =
    EtcdError(Code::FailedPrecondition, "etcdserver: root user does not exist");
pub(crate) const USER_NOT_FOUND: EtcdError =
    EtcdError(Code::FailedPrecondition, "etcdserver: user name not found");
pub(crate) const ROLE_NOT_FOUND: EtcdError =
    EtcdError(Code::FailedPrecondition, "etcdserver: role name not found");

/// Converts a store error to the status that etcd returns. Details for the operator go to the log.
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
            tracing::debug!(%error, "request over a limit of the store");
            REQUEST_TOO_LARGE.into()
        }
        Error::ResponseTooLarge { size, limit } => response_too_large(size, limit),
        Error::Corrupt { .. } => {
            tracing::error!(%error, "corrupt row");
            CORRUPT.into()
        }
        Error::Invalid(text) => Status::invalid_argument(format!("orlop: {text}")),
        error => {
            tracing::warn!(%error, "request failed");
            Status::unavailable(format!("orlop: {error}"))
        }
    }
}

/// The error of grpc-go, and so of etcd, for a message over the send limit.
pub(crate) fn response_too_large(size: u64, limit: u64) -> Status {
    Status::resource_exhausted(format!("grpc: trying to send message larger than max ({size} vs. {limit})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_errors_have_etcds_codes_and_texts() {
        let compacted = status(Error::Expired { compacted: 7 });
        assert_eq!(compacted.code(), Code::OutOfRange);
        assert_eq!(compacted.message(), "etcdserver: mvcc: required revision has been compacted");
        let full = status(Error::Full("no room".into()));
        assert_eq!((full.code(), full.message()), (Code::ResourceExhausted, NO_SPACE.1));
        let lease = status(Error::LeaseNotFound { lease: 3 });
        assert_eq!((lease.code(), lease.message()), (Code::NotFound, LEASE_NOT_FOUND.1));
    }
}
