//! TLS to nodes, pods and services.

use std::sync::Arc;

use orlop_auth::pki::{Credential, Error};
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
};

/// TLS towards nodes: this server's client certificate, and the CA of nodes' certificates.
#[derive(Clone, Debug)]
pub struct NodeTls {
    /// Towards nodes.
    pub(crate) nodes: Arc<ClientConfig>,
    /// Towards pods and services, whose certificates are for other names. Without a client certificate.
    pub(crate) workloads: Arc<ClientConfig>,
}

impl NodeTls {
    /// Returns TLS with a client certificate. Certificates of nodes are verified if a CA is given; kube-apiserver does the
    /// same.
    pub fn new(client: &Credential, ca: Option<&str>) -> Result<Self, Error> {
        let unusable = |error: &dyn std::fmt::Display| Error::Use(error.to_string());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = || {
            ClientConfig::builder_with_provider(provider.clone())
                .with_safe_default_protocol_versions()
                .map_err(|error| unusable(&error))
        };
        let unverified = || {
            let verifier = Arc::new(Unverified(provider.clone()));
            Ok::<_, Error>(builder()?.dangerous().with_custom_certificate_verifier(verifier))
        };
        let verified = match ca {
            Some(ca) => {
                let mut roots = RootCertStore::empty();
                for certificate in CertificateDer::pem_slice_iter(ca.as_bytes()) {
                    let certificate = certificate.map_err(|error| unusable(&error))?;
                    roots.add(certificate).map_err(|error| unusable(&error))?;
                }
                builder()?.with_root_certificates(roots)
            }
            None => unverified()?,
        };
        let chain: Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(client.certificate.as_bytes()).collect();
        let chain = chain.map_err(|error| unusable(&error))?;
        let key = PrivateKeyDer::from_pem_slice(client.key.as_bytes()).map_err(|error| unusable(&error))?;
        let nodes = verified.with_client_auth_cert(chain, key).map_err(|error| unusable(&error))?;
        Ok(Self { nodes: Arc::new(nodes), workloads: Arc::new(unverified()?.with_no_client_auth()) })
    }
}

/// Accepts every certificate whose key the server holds.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
