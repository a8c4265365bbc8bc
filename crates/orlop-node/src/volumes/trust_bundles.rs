//! Certificates of ClusterTrustBundles, as a kubelet projects them: without duplicates, in an order that stays.

use std::collections::BTreeSet;

use base64::{Engine, engine::general_purpose::STANDARD};
use k8s_openapi::api::core::v1::ClusterTrustBundleProjection;
use orlop_client::{
    Api, Client,
    api::ListParams,
    core::{ApiResource, DynamicObject, GroupVersionKind, Selector},
};
use rustls::pki_types::{CertificateDer, pem::PemObject};

/// Versions that servers have bundles in, newest first.
const VERSIONS: [&str; 2] = ["v1", "v1beta1"];
/// Characters of a line of PEM.
const LINE: usize = 64;

/// Returns the certificates that a projection selects, in PEM.
pub(super) async fn read(client: &Client, source: &ClusterTrustBundleProjection) -> Result<String, String> {
    let optional = source.optional == Some(true);
    let found = match (&source.name, &source.signer_name) {
        (Some(name), _) => match get(client, name).await? {
            None if !optional => {
                return Err(format!(
                    "while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io {name:?} not found"
                ));
            }
            found => found.into_iter().collect(),
        },
        (None, Some(signer)) => {
            let found = of_signer(client, signer, source).await?;
            if found.is_empty() && !optional {
                return Err(
                    "combination of signerName and labelSelector matched zero ClusterTrustBundles".to_owned()
                );
            }
            found
        }
        (None, None) => {
            return Err(
                "ClusterTrustBundle projection requires either name or signerName to be set".to_owned()
            );
        }
    };
    Ok(normalize(found.iter().filter_map(|bundle| field(bundle, "/spec/trustBundle"))))
}

async fn get(client: &Client, name: &str) -> Result<Option<DynamicObject>, String> {
    for version in VERSIONS {
        if let Some(found) = api(client, version).get_opt(name).await.map_err(super::text)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

async fn of_signer(
    client: &Client,
    signer: &str,
    source: &ClusterTrustBundleProjection,
) -> Result<Vec<DynamicObject>, String> {
    // No selector matches nothing, an empty one everything.
    let Some(selector) = source.label_selector.clone() else { return Ok(Vec::new()) };
    let selector =
        Selector::try_from(selector).map_err(|error| format!("while parsing label selector: {error}"))?;
    let params = ListParams::default().labels_from(&selector);
    let mut found = Vec::new();
    for version in VERSIONS {
        match api(client, version).list(&params).await {
            Ok(list) => {
                found = list.items;
                break;
            }
            Err(orlop_client::Error::Api(refusal)) if refusal.code == 404 => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    found.retain(|bundle| field(bundle, "/spec/signerName") == Some(signer));
    Ok(found)
}

fn api(client: &Client, version: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("certificates.k8s.io", version, "ClusterTrustBundle");
    Api::all_with(client.clone(), &ApiResource::from_gvk(&kind))
}

fn field<'a>(bundle: &'a DynamicObject, path: &str) -> Option<&'a str> {
    bundle.data.pointer(path).and_then(|text| text.as_str())
}

/// Returns the certificates of bundles, each once.
fn normalize<'a>(bundles: impl Iterator<Item = &'a str>) -> String {
    let certificates = bundles.flat_map(|bundle| CertificateDer::pem_slice_iter(bundle.as_bytes()).flatten());
    let unique: BTreeSet<Vec<u8>> = certificates.map(|certificate| certificate.to_vec()).collect();
    unique.iter().map(|certificate| encode(certificate)).collect()
}

/// Returns a chain of certificates without the text between them.
pub(super) fn clean(chain: &str) -> String {
    CertificateDer::pem_slice_iter(chain.as_bytes())
        .flatten()
        .map(|certificate| encode(&certificate))
        .collect()
}

fn encode(certificate: &[u8]) -> String {
    let text = STANDARD.encode(certificate);
    let lines = text.as_bytes().chunks(LINE).map(String::from_utf8_lossy);
    let body: String = lines.map(|line| format!("{line}\n")).collect();
    format!("-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_of_bundles_are_shown_once() {
        let [a, b] = [b"aaaa".repeat(20), b"bbbb".repeat(20)].map(|bytes| encode(&bytes));
        let bundles = [format!("{b}\n# a comment\n{a}"), a.clone()];
        assert_eq!(normalize(bundles.iter().map(String::as_str)), format!("{a}{b}"));
        assert_eq!(clean(&format!("subject: x\n{b}text\n{a}")), format!("{b}{a}"));
        assert!(a.lines().all(|line| line.len() <= LINE), "{a}");
    }
}
