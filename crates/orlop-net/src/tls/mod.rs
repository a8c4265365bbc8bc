//! Server-side TLS: certificates, client authentication, reload.

mod client_verifier;

pub use client_verifier::ClientVerifier;

use std::{
    fs, io,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use rustls::{
    DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::stream::Socket;

/// ALPN protocols of a front that serves HTTP/1.1 and HTTP/2.
pub const ALPN_HTTP: &[&[u8]] = &[b"h2", b"http/1.1"];
/// ALPN protocols of a front that serves HTTP/2 only.
pub const ALPN_HTTP2: &[&[u8]] = &[b"h2"];

/// Largest TLS record. rustls encrypts each in a buffer of its own, and mimalloc reuses blocks of up to 8 KiB while they
/// are still in the processor's cache. Records of 16 KiB make a long list cost a sixth more (decision 0015).
const RECORD_BYTES: usize = 8000;
/// Interval at which certificate files are checked for changes.
const RELOAD_INTERVAL: Duration = Duration::from_secs(5);

/// TLS set-up failure.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file could not be read.
    #[error("{origin}: {source}")]
    Read {
        /// The file.
        origin: String,
        /// The cause.
        source: io::Error,
    },
    /// PEM without a usable certificate or key.
    #[error("{origin}: {reason}")]
    Pem {
        /// The file, or what the PEM is for.
        origin: String,
        /// The cause.
        reason: String,
    },
    /// The certificate and key do not form a server identity.
    #[error("{origin}: {source}")]
    Certificate {
        /// The certificate file.
        origin: String,
        /// The cause.
        source: rustls::Error,
    },
    /// The client CA does not form a verifier.
    #[error("{origin}: {source}")]
    ClientCa {
        /// The CA file.
        origin: String,
        /// The cause.
        source: rustls::server::VerifierBuilderError,
    },
}

/// Modification time and size of a file.
type Stamp = (SystemTime, u64);

/// PEM data, inline or in a file that is reloaded when it changes.
#[derive(Clone)]
pub enum PemSource {
    /// The PEM itself.
    Inline(String),
    /// A file with it.
    File(PathBuf),
}

impl std::fmt::Debug for PemSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            // May be a key, which must not reach a log.
            Self::Inline(_) => f.write_str("Inline(..)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

impl PemSource {
    fn origin(&self, purpose: &str) -> String {
        match self {
            Self::Inline(_) => purpose.to_owned(),
            Self::File(path) => path.display().to_string(),
        }
    }

    fn read(&self) -> Result<Vec<u8>, TlsError> {
        match self {
            Self::Inline(pem) => Ok(pem.clone().into_bytes()),
            Self::File(path) => {
                fs::read(path).map_err(|source| TlsError::Read { origin: path.display().to_string(), source })
            }
        }
    }

    fn certificates(&self, purpose: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let invalid = |reason: String| TlsError::Pem { origin: self.origin(purpose), reason };
        let pem = self.read()?;
        let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        let all = all.map_err(|error| invalid(error.to_string()))?;
        if all.is_empty() { Err(invalid("contains no certificate".to_owned())) } else { Ok(all) }
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        PrivateKeyDer::from_pem_slice(&self.read()?)
            .map_err(|error| TlsError::Pem { origin: self.origin("private key"), reason: error.to_string() })
    }

    /// Modification time and size, which change when the file is replaced.
    fn stamp(&self) -> Option<Stamp> {
        match self {
            Self::Inline(_) => None,
            Self::File(path) => {
                let metadata = fs::metadata(path).ok()?;
                Some((metadata.modified().ok()?, metadata.len()))
            }
        }
    }
}

/// Treatment of client certificates.
#[derive(Clone, Debug)]
pub enum ClientAuth {
    /// Clients are not asked for a certificate.
    Disabled,
    /// Clients may present a certificate of this CA. The handshake fails for any other.
    Optional(PemSource),
    /// Clients must present a certificate of this CA.
    Required(PemSource),
    /// Clients may present any certificate whose key they hold. It is verified after the handshake, by the first
    /// verifier; the CAs of the others are only named to clients, which choose a certificate by them.
    ///
    /// Go's servers do so: a client may present a certificate for something else and authenticate with a token.
    Deferred(Vec<Arc<ClientVerifier>>),
}

impl ClientAuth {
    fn ca(&self) -> Option<&PemSource> {
        match self {
            Self::Disabled | Self::Deferred(_) => None,
            Self::Optional(ca) | Self::Required(ca) => Some(ca),
        }
    }
}

/// Settings of a TLS server.
#[derive(Clone, Debug)]
pub struct TlsOptions {
    /// The server's certificate, followed by its intermediates.
    pub certificate: PemSource,
    /// The certificate's private key.
    pub key: PemSource,
    /// Treatment of client certificates.
    pub client_auth: ClientAuth,
    /// Protocols offered by ALPN, the preferred one first.
    pub alpn: &'static [&'static [u8]],
}

/// The client's certificate, as the handshake left it.
#[derive(Clone, Debug)]
pub enum ClientCertificate {
    /// The client presented none.
    Absent,
    /// The client CA signed it for client authentication. The chain begins with the client's own.
    Verified(Vec<CertificateDer<'static>>),
    /// The client holds its key; nothing else is known of it. Only with [`ClientAuth::Deferred`].
    Presented(PresentedCertificate),
}

/// A client's certificate that is yet to be verified.
#[derive(Clone, Debug)]
pub struct PresentedCertificate {
    /// The chain, which begins with the client's own.
    pub chain: Vec<CertificateDer<'static>>,
    /// Verifier of the listener's client CAs.
    pub verifier: Arc<ClientVerifier>,
}

/// The outcome of a handshake.
#[derive(Clone, Debug)]
pub struct TlsSession {
    /// The client's certificate.
    pub client: ClientCertificate,
    /// The IANA name of the cipher suite.
    pub cipher_suite: &'static str,
}

/// A TLS server. Clones share one configuration, which follows its files.
#[derive(Clone, Debug)]
pub struct ServerTls {
    options: Arc<Mutex<TlsOptions>>,
    loaded: Arc<Mutex<Loaded>>,
    /// Verifies client certificates after the handshake, with [`ClientAuth::Deferred`].
    deferred: Option<Arc<ClientVerifier>>,
}

#[derive(Debug)]
struct Loaded {
    config: Arc<ServerConfig>,
    stamps: Stamps,
    checked: Instant,
}

/// Stamps of files, and generations of client CAs.
type Stamps = (Vec<Option<Stamp>>, Vec<u64>);

impl ServerTls {
    /// Loads certificates and key.
    pub fn new(options: TlsOptions) -> Result<Self, TlsError> {
        let loaded = Arc::new(Mutex::new(load(&options)?));
        let deferred = match &options.client_auth {
            ClientAuth::Deferred(verifiers) => verifiers.first().cloned(),
            _ => None,
        };
        Ok(Self { options: Arc::new(Mutex::new(options)), loaded, deferred })
    }

    /// Returns the current rustls configuration, for a listener of one's own.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.lock().config.clone()
    }

    /// Replaces the server's certificate and key. Connections that are open stay.
    pub fn replace(&self, certificate: PemSource, key: PemSource) -> Result<(), TlsError> {
        let mut options = self.options();
        let replaced = TlsOptions { certificate, key, ..options.clone() };
        *self.lock() = load(&replaced)?;
        *options = replaced;
        Ok(())
    }

    /// Reloads the files if they changed. A failure is logged and leaves the certificate in use as it is.
    pub fn reload_if_changed(&self) {
        let options = self.options();
        let stamps = stamps(&options);
        if stamps == self.lock().stamps {
            return;
        }
        match load(&options) {
            Ok(loaded) => {
                *self.lock() = loaded;
                tracing::info!(certificate = ?options.certificate, "reloaded TLS certificate");
            }
            // Half-written files are likely: the stamps stay as they were, and the next check tries again.
            Err(error) => tracing::warn!(%error, "cannot reload TLS certificate"),
        }
    }

    /// Performs the server's side of a handshake.
    pub(crate) async fn accept(&self, socket: Socket) -> io::Result<(TlsStream<Socket>, TlsSession)> {
        self.check_files();
        let stream = TlsAcceptor::from(self.config()).accept(socket).await?;
        let session = stream.get_ref().1;
        let chain = session.peer_certificates().unwrap_or_default();
        let client = match (chain, &self.deferred) {
            ([], _) => ClientCertificate::Absent,
            (chain, None) => ClientCertificate::Verified(owned(chain)),
            (chain, Some(verifier)) => ClientCertificate::Presented(PresentedCertificate {
                chain: owned(chain),
                verifier: verifier.clone(),
            }),
        };
        let suite = session.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str());
        Ok((stream, TlsSession { client, cipher_suite: suite.unwrap_or_default() }))
    }

    /// Checks the files for changes, at most once per [`RELOAD_INTERVAL`].
    fn check_files(&self) {
        {
            let mut loaded = self.lock();
            let (files, generations) = &loaded.stamps;
            let is_static = files.iter().all(Option::is_none) && generations.is_empty();
            if loaded.checked.elapsed() < RELOAD_INTERVAL || is_static {
                return;
            }
            loaded.checked = Instant::now();
        }
        self.reload_if_changed();
    }

    fn options(&self) -> std::sync::MutexGuard<'_, TlsOptions> {
        self.options.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Loaded> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn owned(chain: &[CertificateDer<'_>]) -> Vec<CertificateDer<'static>> {
    chain.iter().map(|der| der.clone().into_owned()).collect()
}

fn stamps(options: &TlsOptions) -> Stamps {
    let sources = [Some(&options.certificate), Some(&options.key), options.client_auth.ca()];
    let files = sources.into_iter().flatten().map(PemSource::stamp).collect();
    let verifiers = match &options.client_auth {
        ClientAuth::Deferred(verifiers) => verifiers.as_slice(),
        _ => &[],
    };
    (files, verifiers.iter().map(|verifier| verifier.generation()).collect())
}

fn load(options: &TlsOptions) -> Result<Loaded, TlsError> {
    // Taken before the files are read: a change in between is noticed by the next check.
    let stamps = stamps(options);
    let certificate_error =
        |source| TlsError::Certificate { origin: options.certificate.origin("server certificate"), source };
    // Named, so that nothing depends on the provider that another part of the process installed.
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(certificate_error)?;
    let load_ca = |ca: &PemSource, allow_unauthenticated| {
        client_verifier::load(std::slice::from_ref(ca), &provider, allow_unauthenticated)
    };
    let builder = match &options.client_auth {
        ClientAuth::Disabled => builder.with_no_client_auth(),
        ClientAuth::Optional(ca) => builder.with_client_cert_verifier(load_ca(ca, true)?),
        ClientAuth::Required(ca) => builder.with_client_cert_verifier(load_ca(ca, false)?),
        ClientAuth::Deferred(verifiers) => match verifiers.first() {
            None => builder.with_no_client_auth(),
            Some(first) => builder.with_client_cert_verifier(Arc::new(KeyPossession {
                verifier: first.current().0,
                hints: client_verifier::hints(verifiers),
            })),
        },
    };
    let chain = options.certificate.certificates("server certificate")?;
    let mut config = builder.with_single_cert(chain, options.key.key()?).map_err(certificate_error)?;
    config.max_fragment_size = Some(RECORD_BYTES);
    config.alpn_protocols = options.alpn.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(Loaded { config: Arc::new(config), stamps, checked: Instant::now() })
}

/// Verifies that a client holds the key of its certificate, and nothing else.
#[derive(Debug)]
struct KeyPossession {
    verifier: Arc<dyn ClientCertVerifier>,
    hints: Vec<DistinguishedName>,
}

impl ClientCertVerifier for KeyPossession {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        _first: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}
