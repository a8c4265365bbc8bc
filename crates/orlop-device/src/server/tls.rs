//! TLS for the TCP address.

use std::{fs, io, path::PathBuf, sync::Arc};

use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tokio_rustls::TlsAcceptor;

use super::StartError;

/// The files that TLS needs, all PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The server's certificate, with those between it and its CA.
    pub certificate: PathBuf,
    /// The server's private key.
    pub key: PathBuf,
    /// CAs whose certificates let a client write. Clients without one may still read.
    pub client_ca: Option<PathBuf>,
}

impl TlsFiles {
    pub(crate) fn acceptor(&self) -> Result<TlsAcceptor, StartError> {
        let bad = |path: &PathBuf, error: &dyn std::fmt::Display| StartError::Tls {
            path: path.clone(),
            why: error.to_string(),
        };
        let read = |path: &PathBuf| fs::read(path).map_err(|error: io::Error| bad(path, &error));
        let certificates = |path: &PathBuf| {
            let pem = read(path)?;
            let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
            let all = all.map_err(|error| bad(path, &error))?;
            if all.is_empty() {
                return Err(bad(path, &"no certificate in it"));
            }
            Ok(all)
        };
        let chain = certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&read(&self.key)?).map_err(|error| bad(&self.key, &error))?;
        // Named here, so that nothing depends on what another part of the process installed.
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| bad(&self.certificate, &error))?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(path)? {
                    roots.add(certificate).map_err(|error| bad(path, &error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider)
                    .allow_unauthenticated()
                    .build()
                    .map_err(|error| bad(path, &error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config =
            builder.with_single_cert(chain, key).map_err(|error| bad(&self.certificate, &error))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}
