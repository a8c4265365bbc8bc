//! Kinds of `certificates.k8s.io`.

mod certificate_signing_request;
mod cluster_trust_bundle;
mod pod_certificate_request;
mod proof_of_possession;
mod signing_conditions;

pub(crate) use self::{
    certificate_signing_request::validate_signer_name, cluster_trust_bundle::validate_bundle_name,
};
use crate::BuiltinKind;

pub(crate) const KINDS: &[BuiltinKind] =
    &[certificate_signing_request::KIND, cluster_trust_bundle::KIND, pod_certificate_request::KIND];
