//! TLS to the server, with libpq's verification modes.

use std::{path::PathBuf, sync::Arc};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error as TlsError, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::connection_string::{Target, Verify};
use crate::error::{Error, Result};

/// Locations of the system's trusted authorities, for `sslrootcert=system`.
const SYSTEM_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
];

/// Creates the TLS connector of a target.
pub(super) fn connector(target: &Target) -> Result<MakeRustlsConnect> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = Arc::new(Verifier {
        checked: match target.verify {
            Verify::Nothing => None,
            Verify::Authority | Verify::AuthorityAndName => Some(authority(target, &provider)?),
        },
        name: target.verify == Verify::AuthorityAndName,
        provider: provider.clone(),
    });
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Invalid(format!("TLS: {error}")))?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let config = match &target.client_certificate {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = certificates(certificate)?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, &error))?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| Error::Invalid(format!("sslcert and sslkey: {error}")))?
        }
    };
    Ok(MakeRustlsConnect::new(config))
}

fn authority(target: &Target, provider: &Arc<CryptoProvider>) -> Result<Arc<WebPkiServerVerifier>> {
    let path = match target.root_certificate.as_deref() {
        Some("system") => {
            let chosen = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
            chosen.into_iter().chain(SYSTEM_ROOTS.map(PathBuf::from)).find(|path| path.exists()).ok_or_else(
                || Error::Invalid("sslrootcert=system: this system's certificates were not found".into()),
            )?
        }
        path => PathBuf::from(path.unwrap_or_default()),
    };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(&path)?);
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .map_err(|error| Error::Invalid(format!("sslrootcert {}: {error}", path.display())))
}

fn certificates(path: &PathBuf) -> Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_file_iter(path).and_then(Iterator::collect).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &std::path::Path, error: &rustls::pki_types::pem::Error) -> Error {
    Error::Invalid(format!("{}: {error}", path.display()))
}

/// Verifies the server's certificate as `sslmode` requires. That the server holds the certificate's key is always
/// verified.
#[derive(Debug)]
struct Verifier {
    checked: Option<Arc<WebPkiServerVerifier>>,
    name: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        let Some(checked) = &self.checked else { return Ok(ServerCertVerified::assertion()) };
        match checked.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // The name is verified last, so this certificate is of the authority.
            Err(TlsError::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.name => Ok(ServerCertVerified::assertion()),
            answer => answer,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
