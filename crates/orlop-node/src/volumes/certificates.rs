//! Certificates of pods: a key that the node generates, a PodCertificateRequest for it, and its chain once a signer has
//! issued one. They are renewed from the time on that the signer named.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::{
    ByteString,
    api::{
        certificates::v1::{PodCertificateRequest, PodCertificateRequestSpec},
        core::v1::{Node, Pod, PodCertificateProjection, ServiceAccount},
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
    jiff::Timestamp,
};
use orlop_client::{Api, Client, api::PostParams};
use rcgen::{CertificateParams, DistinguishedName, KeyPair, RsaKeySize};

use super::{text, trust_bundles};

/// Time that an answer is waited for before the pod's volumes are tried again.
const WAIT: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(100);

/// Pod uid, volume and index of a source.
pub(super) type Key = (String, String, usize);

/// Certificates in use.
#[derive(Debug, Default)]
pub(crate) struct Certificates(Mutex<HashMap<Key, State>>);

/// A key and its chain, both in PEM.
#[derive(Clone, Debug)]
pub(super) struct Credential {
    pub(super) key: String,
    pub(super) chain: String,
}

/// A request that has not been answered.
#[derive(Clone, Debug)]
struct Pending {
    key: String,
    request: String,
}

#[derive(Clone, Debug, Default)]
struct State {
    issued: Option<(Credential, Timestamp)>,
    pending: Option<Pending>,
    /// Reason why there will be none: the pod waits for good.
    refused: Option<String>,
}

/// Answer of a signer.
enum Answer {
    Issued { chain: String, refresh_at: Timestamp },
    Refused(String),
    Gone,
    Pending,
}

impl Certificates {
    /// Returns the certificate of a source: the one in use until it is to be renewed and the next one is there.
    pub(super) async fn get(
        &self,
        client: &Client,
        pod: &Pod,
        node: &str,
        key: Key,
        source: &PodCertificateProjection,
    ) -> Result<Credential, String> {
        let mut state = self.lock().get(&key).cloned().unwrap_or_default();
        let renewed = self.renew(client, pod, node, source, &mut state).await;
        let issued = state.issued.clone();
        let refused = state.refused.clone();
        self.lock().insert(key, state);
        match (issued, refused) {
            (_, Some(reason)) => Err(reason),
            (Some((credential, _)), None) => Ok(credential),
            (None, None) => {
                Err(renewed.err().unwrap_or_else(|| "credential bundle is not issued yet".to_owned()))
            }
        }
    }

    async fn renew(
        &self,
        client: &Client,
        pod: &Pod,
        node: &str,
        source: &PodCertificateProjection,
        state: &mut State,
    ) -> Result<(), String> {
        let is_fresh = state.issued.as_ref().is_some_and(|(_, refresh_at)| Timestamp::now() < *refresh_at);
        if is_fresh || state.refused.is_some() {
            return Ok(());
        }
        let pending = match state.pending.take() {
            Some(pending) => pending,
            None => request(client, pod, node, source).await?,
        };
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let requests: Api<PodCertificateRequest> = Api::namespaced(client.clone(), namespace);
        let until = tokio::time::Instant::now() + WAIT;
        loop {
            match answer(&requests, &pending.request).await {
                Ok(Answer::Issued { chain, refresh_at }) => {
                    state.issued = Some((Credential { key: pending.key, chain }, refresh_at));
                    return Ok(());
                }
                Ok(Answer::Refused(reason)) => {
                    state.refused = Some(reason);
                    return Ok(());
                }
                // Deleted by somebody: asked for again.
                Ok(Answer::Gone) => {
                    return Err("PodCertificateRequest appears to have been deleted".to_owned());
                }
                // One that is in use serves meanwhile.
                Ok(Answer::Pending) if state.issued.is_none() && tokio::time::Instant::now() < until => {
                    tokio::time::sleep(POLL).await;
                }
                Ok(Answer::Pending) => {
                    state.pending = Some(pending);
                    return Ok(());
                }
                Err(error) => {
                    state.pending = Some(pending);
                    return Err(error);
                }
            }
        }
    }

    /// Forgets the certificates of a pod.
    pub(crate) fn forget(&self, uid: &str) {
        self.lock().retain(|(pod, ..), _| pod != uid);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, State>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Generates a key and asks for its certificate.
async fn request(
    client: &Client,
    pod: &Pod,
    node: &str,
    source: &PodCertificateProjection,
) -> Result<Pending, String> {
    let kind = source.key_type.clone();
    // RSA keys take their time.
    let generated = tokio::task::spawn_blocking(move || generate(&kind)).await.map_err(text)?;
    let (key, stub) = generated.map_err(|error| format!("while generating keypair: {error}"))?;
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone()).unwrap_or_default();
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let account_uid =
        accounts.get(&account).await.map_err(|error| format!("while fetching service account: {error}"))?;
    let nodes: Api<Node> = Api::all(client.clone());
    let node_object = nodes.get(node).await.map_err(|error| format!("while getting node object: {error}"))?;
    let (name, uid) =
        (pod.metadata.name.clone().unwrap_or_default(), pod.metadata.uid.clone().unwrap_or_default());
    let wanted = PodCertificateRequest {
        metadata: ObjectMeta {
            generate_name: Some("req-".to_owned()),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Pod".to_owned(),
                name: name.clone(),
                uid: uid.clone(),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        spec: PodCertificateRequestSpec {
            signer_name: source.signer_name.clone(),
            pod_name: name,
            pod_uid: uid,
            service_account_name: account,
            service_account_uid: account_uid.metadata.uid.unwrap_or_default(),
            node_name: node.to_owned(),
            node_uid: node_object.metadata.uid.unwrap_or_default(),
            max_expiration_seconds: source.max_expiration_seconds,
            stub_pkc_s10_request: ByteString(stub),
            unverified_user_annotations: source.user_annotations.clone(),
        },
        status: None,
    };
    let requests: Api<PodCertificateRequest> = Api::namespaced(client.clone(), namespace);
    let created = requests.create(&PostParams::default(), &wanted).await;
    let created =
        created.map_err(|error| format!("while creating initial PodCertificateRequest: {error}"))?;
    Ok(Pending { key, request: created.metadata.name.unwrap_or_default() })
}

async fn answer(requests: &Api<PodCertificateRequest>, name: &str) -> Result<Answer, String> {
    let Some(found) = requests.get_opt(name).await.map_err(text)? else { return Ok(Answer::Gone) };
    let Some(status) = found.status else { return Ok(Answer::Pending) };
    for condition in status.conditions.iter().flatten() {
        let why = || format!("reason={:?}, message={:?}", condition.reason, condition.message);
        match condition.type_.as_str() {
            "Issued" => {
                let chain = trust_bundles::clean(status.certificate_chain.as_deref().unwrap_or_default());
                let refresh_at = status.begin_refresh_at.map_or(Timestamp::MAX, |time| time.0);
                return Ok(Answer::Issued { chain, refresh_at });
            }
            "Denied" => return Ok(Answer::Refused(format!("PodCertificateRequest was denied, {}", why()))),
            "Failed" => return Ok(Answer::Refused(format!("PodCertificateRequest failed, {}", why()))),
            _ => {}
        }
    }
    Ok(Answer::Pending)
}

/// Returns a new key in PEM, and a request that proves it and says nothing else.
fn generate(kind: &str) -> Result<(String, Vec<u8>), String> {
    let pair = match kind {
        "RSA3072" => KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_3072),
        "RSA4096" => KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_4096),
        "ECDSAP256" => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256),
        "ECDSAP384" => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384),
        "ECDSAP521" => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P521_SHA512),
        "ED25519" => KeyPair::generate_for(&rcgen::PKCS_ED25519),
        unknown => return Err(format!("unknown key type {unknown:?}")),
    };
    let pair = pair.map_err(text)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let stub = params.serialize_request(&pair).map_err(text)?;
    Ok((pair.serialize_pem(), stub.der().to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stub_request_has_no_subject() {
        use x509_parser::prelude::FromDer;
        for kind in ["ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"] {
            let (key, stub) = generate(kind).unwrap();
            assert!(key.starts_with("-----BEGIN PRIVATE KEY-----"), "{key}");
            let (_, request) =
                x509_parser::certification_request::X509CertificationRequest::from_der(&stub).unwrap();
            assert_eq!(request.certification_request_info.subject.to_string(), "");
        }
        assert_eq!(generate("DSA"), Err("unknown key type \"DSA\"".to_owned()));
    }
}
