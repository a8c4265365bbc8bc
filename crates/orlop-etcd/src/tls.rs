//! TLS for those who connect: the server's certificate, and which client certificates to trust.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// How long a client may take to shake hands.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Why TLS cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file could not be read, or holds no PEM of the kind expected.
    #[error("{path}: {source}", path = .path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        source: rustls::pki_types::pem::Error,
    },
    /// The certificate and key do not make a server.
    #[error("certificate: {0}")]
    Rustls(#[from] rustls::Error),
    /// The trusted CA does not make a verifier.
    #[error("trusted CA: {0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// What a server needs to speak TLS.
#[derive(Clone)]
pub struct ServerTls {
    acceptor: TlsAcceptor,
}

impl std::fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ServerTls")
    }
}

impl ServerTls {
    /// Reads PEM files. With a trusted CA, only clients that show a certificate of it may connect.
    pub fn load(certificate: &Path, key: &Path, trusted_ca: Option<&Path>) -> Result<Self, TlsError> {
        let chain = certificates(certificate)?;
        let key = PrivateKeyDer::from_pem_file(key)
            .map_err(|source| TlsError::File { path: key.into(), source })?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder =
            ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
        let builder = match trusted_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(path)? {
                    roots.add(certificate)?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)) })
    }

    pub(crate) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        socket: S,
    ) -> io::Result<TlsStream<S>> {
        match tokio::time::timeout(HANDSHAKE, self.acceptor.accept(socket)).await {
            Ok(accepted) => accepted,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |source| TlsError::File { path: path.into(), source };
    CertificateDer::pem_file_iter(path).map_err(failed)?.collect::<Result<_, _>>().map_err(failed)
}
