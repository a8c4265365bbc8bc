//! Certificates: the cluster's own CA, generated at the first start, and what it issues.

use std::{
    fs::{self, OpenOptions, Permissions},
    io::{self, Write},
    net::IpAddr,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
    sync::Arc,
    time::Duration,
};

use aws_lc_rs::{
    encoding::{AsDer, EcPrivateKeyRfc5915Der},
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use orlop_net::{ALPN_HTTP, ClientAuth, ClientVerifier, PemSource, ServerTls, TlsError, TlsOptions};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
    sign::CertifiedKey,
};
use x509_parser::extensions::GeneralName;

use crate::{
    certificate_request::{CertificateRequest, Usages},
    encoding::pem,
};

/// Errors of certificates.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: String,
        /// The cause.
        source: io::Error,
    },
    /// A certificate could not be generated.
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// A certificate or key could not be used.
    #[error("cannot use a certificate: {0}")]
    Use(String),
    /// The service account key cannot be used.
    #[error(transparent)]
    Issuer(#[from] crate::issuer::IssuerError),
    /// TLS cannot be served with a certificate.
    #[error("cannot serve TLS: {0}")]
    Tls(#[from] TlsError),
}

/// A certificate and its key, as PEM.
#[derive(Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Credential {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

impl Credential {
    /// Checks that the certificate and the key can be used and belong together.
    pub fn check(&self) -> Result<(), Error> {
        certified_key(self).map(drop)
    }

    /// Returns the certificate and the key as sources of a TLS server.
    pub fn to_sources(&self) -> (PemSource, PemSource) {
        (PemSource::Inline(self.certificate.clone()), PemSource::Inline(self.key.clone()))
    }
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Keys stay out of logs.
        f.debug_struct("Credential").finish_non_exhaustive()
    }
}

/// The CA of a cluster.
#[derive(Debug)]
pub struct Authority {
    credential: Credential,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Generates a CA.
    pub fn generate() -> Result<Self, Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = name("orlop", None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        set_validity(&mut params, 10);
        let certificate = params.self_signed(&key)?.pem();
        Self::load(Credential { certificate, key: key.serialize_pem() })
    }

    /// Loads a CA from its certificate and key, which must belong together.
    pub fn load(credential: Credential) -> Result<Self, Error> {
        certified_key(&credential)?;
        let key = KeyPair::from_pem(&credential.key)?;
        let issuer = Issuer::from_ca_cert_pem(&credential.certificate, key)?;
        Ok(Self { credential, issuer })
    }

    /// Loads the CA in a directory, or generates it there.
    pub fn load_or_generate(folder: &Path) -> Result<Self, Error> {
        let (certificate, key) = (folder.join("ca.crt"), folder.join("ca.key"));
        // Half a CA is an error: a new one in its place would invalidate every certificate of the old.
        if certificate.exists() || key.exists() {
            let credential = Credential { certificate: read(&certificate)?, key: read(&key)? };
            return Self::load(credential).map_err(|error| {
                Error::Use(format!("{} and {}: {error}", certificate.display(), key.display()))
            });
        }
        let generated = Self::generate()?;
        fs::create_dir_all(folder).map_err(|source| file(folder, source))?;
        write_secret(&key, generated.credential.key.as_bytes())?;
        fs::write(&certificate, &generated.credential.certificate)
            .map_err(|source| file(&certificate, source))?;
        Ok(generated)
    }

    /// Returns the CA's certificate and key.
    pub fn credential(&self) -> &Credential {
        &self.credential
    }

    /// Returns whether this CA issued a client certificate that stays valid for `margin`, and the key is its.
    pub fn is_client_valid(&self, client: &Credential, margin: Duration) -> bool {
        is_client_of(self.certificate(), client, margin)
    }

    /// Returns the CA's certificate.
    pub fn certificate(&self) -> &str {
        &self.credential.certificate
    }

    /// Issues a server certificate for names and addresses.
    pub fn server(&self, names: &[String], addresses: &[IpAddr]) -> Result<Credential, Error> {
        let mut params = CertificateParams::new(names.to_vec())?;
        params.subject_alt_names.extend(addresses.iter().map(|address| SanType::IpAddress(*address)));
        params.distinguished_name = name("orlop-server", None);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    /// Issues a client certificate for a user in a group; in none if it is empty.
    pub fn client(&self, user: &str, group: &str) -> Result<Credential, Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name = name(user, Some(group).filter(|group| !group.is_empty()));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    /// Signs a certificate request. Returns the certificate, PEM.
    pub fn sign_request(
        &self,
        request: &CertificateRequest,
        usages: Usages,
        lifetime: Duration,
    ) -> Result<String, Error> {
        let now = crate::time::system_clock();
        let key = KeyPair::from_pem(&self.credential.key)?;
        request
            .sign(&self.credential.certificate, &key, usages, lifetime, now)
            .map_err(|error| Error::Use(error.to_string()))
    }

    fn sign(&self, mut params: CertificateParams) -> Result<Credential, Error> {
        let key = KeyPair::generate()?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        set_validity(&mut params, 5);
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Credential { certificate, key: sec1_pem(&key)? })
    }
}

/// A request for a certificate, and its key.
#[derive(Clone, PartialEq, Eq)]
pub struct Request {
    /// The request (PKCS#10), PEM.
    pub pem: String,
    /// The key, PEM.
    pub key: String,
}

impl Request {
    /// Returns a request for a user in a group, or a server with names and addresses.
    pub fn new(user: &str, group: &str, names: &[String], addresses: &[IpAddr]) -> Result<Self, Error> {
        let mut params = CertificateParams::new(names.to_vec())?;
        params.subject_alt_names.extend(addresses.iter().map(|address| SanType::IpAddress(*address)));
        params.distinguished_name = name(user, Some(group));
        let key = KeyPair::generate()?;
        Ok(Self { pem: params.serialize_request(&key)?.pem()?, key: sec1_pem(&key)? })
    }
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Keys stay out of logs.
        f.debug_struct("Request").finish_non_exhaustive()
    }
}

/// Generates a key for signing (P-256), as PEM.
pub fn generate_key() -> Result<String, Error> {
    sec1_pem(&KeyPair::generate()?)
}

/// Returns a P-256 key in the form of SEC 1, `BEGIN EC PRIVATE KEY`. Every client reads it; PKCS#8 some do not.
fn sec1_pem(key: &KeyPair) -> Result<String, Error> {
    let unusable = |error: &dyn std::fmt::Display| Error::Use(error.to_string());
    let pair = EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_ASN1_SIGNING, &key.serialize_der())
        .map_err(|error| unusable(&error))?;
    let der: EcPrivateKeyRfc5915Der<'_> = pair.private_key().as_der().map_err(|error| unusable(&error))?;
    Ok(pem("EC PRIVATE KEY", der.as_ref()))
}

/// Loads a certificate chain and its key, which must belong together.
fn certified_key(credential: &Credential) -> Result<CertifiedKey, Error> {
    let unusable = |error: &dyn std::fmt::Display| Error::Use(error.to_string());
    let chain =
        CertificateDer::pem_slice_iter(credential.certificate.as_bytes()).collect::<Result<Vec<_>, _>>();
    let key = PrivateKeyDer::from_pem_slice(credential.key.as_bytes())
        .map_err(|error| Error::Use(format!("the private key: {error}")))?;
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let certified = CertifiedKey::from_der(chain.map_err(|error| unusable(&error))?, key, &provider);
    certified.map_err(|error| unusable(&error))
}

/// Returns a verifier of client certificates that a CA has issued.
fn client_verifier(ca: &str) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let unusable = |error: &dyn std::fmt::Display| Error::Use(error.to_string());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca.as_bytes()) {
        roots.add(certificate.map_err(|error| unusable(&error))?).map_err(|error| unusable(&error))?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .allow_unauthenticated()
        .build()
        .map_err(|error| unusable(&error))
}

fn name(common: &str, organization: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    if let Some(organization) = organization {
        name.push(DnType::OrganizationName, organization);
    }
    name.push(DnType::CommonName, common);
    name
}

fn set_validity(params: &mut CertificateParams, years: i64) {
    let now = time::OffsetDateTime::now_utc();
    // Clocks differ; a new certificate must be valid everywhere at once.
    params.not_before = now - time::Duration::hours(1);
    params.not_after = now + time::Duration::days(365 * years);
}

/// Returns TLS for a server that requests client certificates of a CA.
///
/// A client that presents none, or one of another CA, completes the handshake all the same: it may have a token.
/// Go's servers do so, and clients with a certificate for something else in the same store rely on it.
pub fn server_tls(server: &Credential, client_ca: &str) -> Result<ServerTls, Error> {
    let verifier = ClientVerifier::new(vec![PemSource::Inline(client_ca.to_owned())])?;
    let (certificate, key) = server.to_sources();
    Ok(server_tls_with(certificate, key, vec![Arc::new(verifier)])?)
}

/// Returns TLS for a server whose client certificates the first verifier verifies. The CAs of the others are only
/// named to clients.
pub fn server_tls_with(
    certificate: PemSource,
    key: PemSource,
    verifiers: Vec<Arc<ClientVerifier>>,
) -> Result<ServerTls, TlsError> {
    ServerTls::new(TlsOptions {
        certificate,
        key,
        client_auth: ClientAuth::Deferred(verifiers),
        alpn: ALPN_HTTP,
    })
}

/// Returns whether a certificate (PEM) stays valid for `margin`.
pub fn is_valid_for(certificate: &str, margin: Duration) -> bool {
    let Some(Ok(first)) = CertificateDer::pem_slice_iter(certificate.as_bytes()).next() else { return false };
    let Ok((_, parsed)) = x509_parser::parse_x509_certificate(&first) else { return false };
    let until = crate::time::system_clock() + margin.as_secs().cast_signed();
    parsed.validity().not_after.timestamp() > until
}

/// Returns whether one of some CAs (PEM) issued a client certificate that stays valid for `margin`, and the key is its.
pub fn is_client_of(cas: &str, client: &Credential, margin: Duration) -> bool {
    let Ok(certified) = certified_key(client) else { return false };
    let Some((first, others)) = certified.cert.split_first() else { return false };
    let at = UnixTime::since_unix_epoch(Duration::from_secs(UnixTime::now().as_secs()) + margin);
    client_verifier(cas).is_ok_and(|verifier| verifier.verify_client_cert(first, others, at).is_ok())
}

/// Returns the first certificate of some (PEM).
pub fn first_certificate(certificates: &str) -> &str {
    const END: &str = "-----END CERTIFICATE-----";
    certificates.find(END).map_or(certificates, |at| &certificates[..at + END.len()])
}

/// Returns true if two sets of certificates (PEM) have one in common.
pub fn share_a_certificate(one: &str, other: &str) -> bool {
    let all = |pem: &str| -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(pem.as_bytes()).filter_map(Result::ok).collect()
    };
    let known = all(one);
    all(other).iter().any(|certificate| known.contains(certificate))
}

/// Returns the TLS server name for clients that reach a server at an address: `None` if its certificate has the address,
/// otherwise the first name in it.
pub fn name_for(certificate: &str, address: IpAddr) -> Option<String> {
    let first = CertificateDer::pem_slice_iter(certificate.as_bytes()).next()?.ok()?;
    let (_, parsed) = x509_parser::parse_x509_certificate(&first).ok()?;
    let names = &parsed.subject_alternative_name().ok()??.value.general_names;
    let bytes = match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    if names.iter().any(|name| matches!(name, GeneralName::IPAddress(known) if *known == bytes)) {
        return None;
    }
    names.iter().find_map(|name| match name {
        // A name that the wildcard covers.
        GeneralName::DNSName(name) => Some(name.replacen('*', "orlop", 1)),
        _ => None,
    })
}

/// Loads the service account key in a directory, or generates it there.
pub fn load_or_generate_issuer(folder: &Path) -> Result<crate::issuer::Issuer, Error> {
    let path = folder.join("sa.key");
    if !path.exists() {
        fs::create_dir_all(folder).map_err(|source| file(folder, source))?;
        write_secret(&path, KeyPair::generate()?.serialize_pem().as_bytes())?;
    }
    Ok(crate::issuer::Issuer::from_pem(&read(&path)?)?)
}

/// Generates a bearer token: 32 random bytes.
pub fn generate_token() -> String {
    URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>())
}

/// Writes a file with mode 0600, and tightens an existing one.
pub fn write_secret(path: &Path, content: &[u8]) -> Result<(), Error> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let write = |mut file: fs::File| {
        file.set_permissions(Permissions::from_mode(0o600))?;
        file.write_all(content)
    };
    options.open(path).and_then(write).map_err(|source| file(path, source))
}

fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|source| file(path, source))
}

fn file(path: &Path, source: io::Error) -> Error {
    Error::File { path: path.display().to_string(), source }
}
