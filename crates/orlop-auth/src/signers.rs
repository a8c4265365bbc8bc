//! Kubernetes' own signers of certificates: what each signs, and with which usages.

use std::time::Duration;

use crate::{
    certificate_request::{CertificateRequest, Usages},
    pki::Authority,
};

/// Signer of clients' certificates.
pub const API_SERVER_CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";

const SIGNATURE: &str = "digital signature";
const ENCIPHERMENT: &str = "key encipherment";
const CLIENT: &str = "client auth";
const SERVER: &str = "server auth";

/// Signs a request (PEM) as a signer of the cluster. Returns the certificate in PEM, or the reason why the signer refuses;
/// `None` if the signer is not one of Kubernetes' own.
pub fn sign(
    authority: &Authority,
    signer: &str,
    pem: &[u8],
    usages: &[String],
    lifetime: Duration,
) -> Option<Result<String, String>> {
    let check: fn(&CertificateRequest, &[String]) -> Result<(), String> = match signer {
        API_SERVER_CLIENT => |_, usages| check_client_usages(usages),
        KUBELET_CLIENT => check_kubelet_client,
        KUBELET_SERVING => check_kubelet_serving,
        _ => return None,
    };
    Some((|| {
        let request = CertificateRequest::parse(pem).map_err(|error| error.to_string())?;
        check(&request, usages)?;
        let usages = Usages::parse(usages).map_err(|error| error.to_string())?;
        authority.sign_request(&request, usages, lifetime).map_err(|error| error.to_string())
    })())
}

/// Returns the common name of a request (PEM) if it is one of a kubelet for a client certificate.
pub fn kubelet_client(signer: &str, pem: &[u8], usages: &[String]) -> Option<String> {
    let request = CertificateRequest::parse(pem).ok().filter(|_| signer == KUBELET_CLIENT)?;
    check_kubelet_client(&request, usages).ok()?;
    Some(request.common_name)
}

fn check_client_usages(usages: &[String]) -> Result<(), String> {
    if let Some(other) =
        usages.iter().find(|usage| ![SIGNATURE, ENCIPHERMENT, CLIENT].contains(&usage.as_str()))
    {
        return Err(format!("invalid usage for client certificate: {other}"));
    }
    match usages.iter().any(|usage| usage == CLIENT) {
        true => Ok(()),
        false => Err(format!("missing required usage for client certificate: {CLIENT}")),
    }
}

fn check_kubelet_client(request: &CertificateRequest, usages: &[String]) -> Result<(), String> {
    check_node(request)?;
    if request.has_host_names || request.has_other_names {
        return Err("subjectAltNames are not allowed".to_owned());
    }
    check_exact_usages(usages, CLIENT)
}

fn check_kubelet_serving(request: &CertificateRequest, usages: &[String]) -> Result<(), String> {
    check_node(request)?;
    if !request.has_host_names {
        return Err("DNS or IP subjectAltName is required".to_owned());
    }
    if request.has_other_names {
        return Err("email and URI subjectAltNames are not allowed".to_owned());
    }
    check_exact_usages(usages, SERVER)
}

fn check_node(request: &CertificateRequest) -> Result<(), String> {
    if request.organizations != ["system:nodes"] {
        return Err("subject organization is not system:nodes".to_owned());
    }
    if !request.common_name.starts_with("system:node:") {
        return Err("subject common name does not begin with system:node:".to_owned());
    }
    Ok(())
}

/// A digital signature, the purpose, and key encipherment at most.
fn check_exact_usages(usages: &[String], purpose: &str) -> Result<(), String> {
    let has = |wanted: &str| usages.iter().any(|usage| usage == wanted);
    let others = usages.iter().any(|usage| ![SIGNATURE, ENCIPHERMENT, purpose].contains(&usage.as_str()));
    if has(SIGNATURE) && has(purpose) && !others {
        return Ok(());
    }
    Err(format!("usages did not match [{SIGNATURE} {purpose}] or [{SIGNATURE} {ENCIPHERMENT} {purpose}]"))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    use super::*;

    fn request(name: &str, organization: &str, hosts: &[&str]) -> String {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, organization);
        params.distinguished_name.push(DnType::CommonName, name);
        params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap()
    }

    fn signed(signer: &str, pem: &str, usages: &[&str]) -> Option<Result<(), String>> {
        let authority = Authority::generate().unwrap();
        let usages: Vec<String> = usages.iter().map(|usage| (*usage).to_owned()).collect();
        let signed = sign(&authority, signer, pem.as_bytes(), &usages, Duration::from_secs(600));
        signed.map(|signed| signed.map(drop))
    }

    #[test]
    fn signers_sign_only_what_they_are_for() {
        let ann = request("ann", "dev", &[]);
        assert_eq!(signed(API_SERVER_CLIENT, &ann, &[CLIENT]), Some(Ok(())));
        assert_eq!(
            signed(API_SERVER_CLIENT, &ann, &[CLIENT, SERVER]),
            Some(Err("invalid usage for client certificate: server auth".to_owned()))
        );
        assert_eq!(
            signed(API_SERVER_CLIENT, &ann, &[SIGNATURE]),
            Some(Err("missing required usage for client certificate: client auth".to_owned()))
        );
        assert!(signed(API_SERVER_CLIENT, "nonsense", &[CLIENT]).unwrap().is_err());
        assert_eq!(signed("example.com/mine", &ann, &[CLIENT]), None);
        let kubelet = request("system:node:a", "system:nodes", &[]);
        assert_eq!(signed(KUBELET_CLIENT, &kubelet, &[SIGNATURE, CLIENT]), Some(Ok(())));
        assert!(signed(KUBELET_CLIENT, &ann, &[SIGNATURE, CLIENT]).unwrap().is_err());
        let impostor = request("ann", "system:nodes", &[]);
        assert!(signed(KUBELET_CLIENT, &impostor, &[SIGNATURE, CLIENT]).unwrap().is_err());
        assert!(
            signed(KUBELET_SERVING, &kubelet, &[SIGNATURE, SERVER])
                .unwrap()
                .unwrap_err()
                .contains("required")
        );
        let serving = request("system:node:a", "system:nodes", &["a.example.org"]);
        assert_eq!(signed(KUBELET_SERVING, &serving, &[SIGNATURE, ENCIPHERMENT, SERVER]), Some(Ok(())));
        assert!(signed(KUBELET_SERVING, &serving, &[SERVER]).unwrap().is_err());
    }
}
