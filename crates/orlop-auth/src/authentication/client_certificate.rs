//! Client certificates: the common name is the user, organizations are groups.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use orlop_net::{ClientCertificate, ClientVerifier, PresentedCertificate};
use rustls::pki_types::{CertificateDer, UnixTime};
use sha2::{Digest, Sha256};
use x509_parser::{prelude::X509Certificate, x509::AttributeTypeAndValue};

use crate::User;

/// Attribute of a subject with the user's uid, as in Kubernetes.
const UID_ATTRIBUTE: &str = "1.3.6.1.4.1.57683.2";
/// Extra field with the id of a credential.
pub(super) const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
/// Seconds for which a connection's certificate is not verified again, unless the CAs change.
const VERDICT_SECONDS: i64 = 10;

/// The other end of a connection.
#[derive(Debug)]
pub enum Peer {
    /// A client without a certificate.
    Unknown,
    /// A client in this process, which needs no credential.
    InProcess(Arc<User>),
    /// A client with a certificate.
    Certificate(PeerCertificate),
}

impl Peer {
    /// Returns the peer of a TLS connection.
    pub fn of(certificate: &ClientCertificate) -> Self {
        match certificate {
            ClientCertificate::Presented(presented) => {
                Self::Certificate(PeerCertificate::new(presented.clone()))
            }
            // Listeners of an API server verify certificates after the handshake.
            ClientCertificate::Absent | ClientCertificate::Verified(_) => Self::Unknown,
        }
    }
}

/// A client's certificate. It is verified for each request, as it may expire and CAs may change, but not more often
/// than needed.
#[derive(Debug)]
pub struct PeerCertificate {
    presented: PresentedCertificate,
    subject: OnceLock<Result<Subject, String>>,
    as_client: Mutex<Option<Verdict>>,
    as_proxy: Mutex<Option<Verdict>>,
}

/// Contents of a certificate, true or not.
#[derive(Clone, Debug)]
struct Subject {
    /// `None` if it has no common name.
    user: Option<Arc<User>>,
    common_name: String,
    /// In seconds since the epoch.
    not_after: i64,
    serial: String,
}

/// The outcome of a verification.
#[derive(Clone, Debug)]
struct Verdict {
    generation: u64,
    until: i64,
    verified: Result<(), String>,
}

impl PeerCertificate {
    /// Returns a certificate that a client has presented.
    pub fn new(presented: PresentedCertificate) -> Self {
        Self { presented, subject: OnceLock::new(), as_client: Mutex::default(), as_proxy: Mutex::default() }
    }

    /// Returns the user, if the listener's client CAs vouch for it now. `None` if the certificate names none.
    pub fn user(&self, now: i64) -> Result<Option<Arc<User>>, String> {
        self.verify(&self.presented.verifier, &self.as_client, now)?;
        Ok(self.subject()?.user.clone())
    }

    /// Returns the common name, if the CAs of front proxies vouch for it now.
    pub fn proxy_name(&self, verifier: &ClientVerifier, now: i64) -> Result<&str, String> {
        self.verify(verifier, &self.as_proxy, now)?;
        Ok(&self.subject()?.common_name)
    }

    fn subject(&self) -> Result<&Subject, String> {
        let parse = || match self.presented.chain.first() {
            Some(certificate) => subject(certificate),
            None => Err("no certificate".to_owned()),
        };
        self.subject.get_or_init(parse).as_ref().map_err(Clone::clone)
    }

    fn verify(
        &self,
        verifier: &ClientVerifier,
        verdict: &Mutex<Option<Verdict>>,
        now: i64,
    ) -> Result<(), String> {
        let subject = self.subject()?;
        let generation = verifier.generation();
        let mut last = verdict.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(verdict) = last.as_ref()
            && verdict.generation == generation
            && now < verdict.until
        {
            return verdict.verified.clone();
        }
        let time = UnixTime::since_unix_epoch(std::time::Duration::from_secs(now.max(0).cast_unsigned()));
        let verified = verifier.verify(&self.presented.chain, time);
        let verified =
            verified.map_err(|error| format!("verifying certificate SN={} failed: {error}", subject.serial));
        let until = match verified {
            // The last second of a certificate is one of its life.
            Ok(()) => (now + VERDICT_SECONDS).min(subject.not_after + 1),
            Err(_) => now + 1,
        };
        *last = Some(Verdict { generation, until, verified: verified.clone() });
        verified
    }
}

fn subject(certificate: &CertificateDer<'_>) -> Result<Subject, String> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate)
        .map_err(|error| format!("malformed certificate: {error}"))?;
    // Of several common names the last counts, as in Go.
    let common_name = texts(parsed.subject().iter_common_name())?.pop().unwrap_or_default();
    let user = match common_name.as_str() {
        "" => None,
        name => Some(Arc::new(User {
            name: name.to_owned(),
            uid: uid(&parsed)?,
            groups: texts(parsed.subject().iter_organization())?,
            extra: [(CREDENTIAL_ID.to_owned(), vec![credential_id(certificate)])].into(),
        })),
    };
    Ok(Subject {
        user,
        common_name,
        not_after: parsed.validity().not_after.timestamp(),
        serial: parsed.serial.to_string(),
    })
}

fn texts<'a>(attributes: impl Iterator<Item = &'a AttributeTypeAndValue<'a>>) -> Result<Vec<String>, String> {
    let text = |attribute: &AttributeTypeAndValue<'_>| attribute.as_str().map(str::to_owned);
    let texts: Result<_, _> = attributes.map(text).collect();
    texts.map_err(|error| format!("the certificate's subject is not text: {error}"))
}

fn uid(certificate: &X509Certificate<'_>) -> Result<String, String> {
    let is_uid =
        |attribute: &&AttributeTypeAndValue<'_>| attribute.attr_type().to_id_string() == UID_ATTRIBUTE;
    let mut uids = texts(certificate.subject().iter_attributes().filter(is_uid))?;
    match (uids.pop(), uids.is_empty()) {
        (None, _) => Ok(String::new()),
        (Some(_), false) => Err("expected 1 UID, but found multiple".to_owned()),
        (Some(uid), true) if uid.is_empty() => Err("UID cannot be an empty string".to_owned()),
        (Some(uid), true) => Ok(uid),
    }
}

fn credential_id(certificate: &CertificateDer<'_>) -> String {
    let digest = Sha256::digest(certificate);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("X509SHA256={hex}")
}

#[cfg(test)]
mod tests {
    use orlop_net::PemSource;
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, ExtendedKeyUsagePurpose};
    use rustls::pki_types::pem::PemObject;

    use super::*;
    use crate::pki::Authority;

    fn peer(chain: Vec<CertificateDer<'static>>, ca: &str) -> PeerCertificate {
        let verifier = Arc::new(ClientVerifier::new(vec![PemSource::Inline(ca.to_owned())]).unwrap());
        PeerCertificate::new(PresentedCertificate { chain, verifier })
    }

    fn der(pem: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
    }

    /// Returns a CA and a certificate of it with a subject and a validity in seconds from now.
    fn issue(names: &[(DnType, &str)], from: i64, to: i64) -> (String, CertificateDer<'static>) {
        let ca = Authority::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in names {
            params.distinguished_name.push(kind.clone(), DnValue::Utf8String((*value).to_owned()));
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let now = time::OffsetDateTime::now_utc();
        params.not_before = now + time::Duration::seconds(from);
        params.not_after = now + time::Duration::seconds(to);
        let issuer = rcgen::Issuer::from_ca_cert_pem(
            ca.certificate(),
            rcgen::KeyPair::from_pem(&ca.credential().key).unwrap(),
        )
        .unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        (ca.certificate().to_owned(), certificate.der().clone())
    }

    fn uid_type() -> DnType {
        DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2])
    }

    #[test]
    fn user_is_the_common_name_and_groups_are_organizations() {
        let names = [(DnType::OrganizationName, "dev"), (DnType::CommonName, "ann"), (uid_type(), "u-1")];
        let (ca, certificate) = issue(&names, -60, 3600);
        let now = crate::time::system_clock();
        let user = peer(vec![certificate], &ca).user(now).unwrap().unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("ann", "u-1"));
        assert_eq!(user.groups, ["dev"]);
        assert!(user.extra[CREDENTIAL_ID][0].starts_with("X509SHA256="));
        let (ca, nameless) = issue(&[(DnType::OrganizationName, "dev")], -60, 3600);
        assert_eq!(peer(vec![nameless], &ca).user(now), Ok(None));
        let (ca, empty_uid) = issue(&[(DnType::CommonName, "ann"), (uid_type(), "")], -60, 3600);
        assert!(peer(vec![empty_uid], &ca).user(now).is_err());
    }

    #[test]
    fn certificates_are_valid_only_in_their_time_and_by_their_ca() {
        let (ca, certificate) = issue(&[(DnType::CommonName, "ann")], -60, 3600);
        let now = crate::time::system_clock();
        let peer = |chain, ca: &str| peer(chain, ca);
        let known = peer(vec![certificate.clone()], &ca);
        assert!(known.user(now).is_ok());
        assert!(known.user(now + 3500).is_ok());
        // The verdict does not outlive the certificate.
        assert!(known.user(now + 3605).unwrap_err().contains("expired"));
        assert!(peer(vec![certificate.clone()], &ca).user(now - 120).is_err(), "not yet valid");
        let other = Authority::generate().unwrap();
        assert!(peer(vec![certificate], other.certificate()).user(now).is_err());
        let server = other.server(&["localhost".to_owned()], &[]).unwrap();
        assert!(peer(vec![der(&server.certificate)], other.certificate()).user(now).is_err(), "for servers");
    }

    #[test]
    fn garbage_is_no_certificate() {
        let ca = Authority::generate().unwrap();
        let garbage = CertificateDer::from(vec![0x30, 0x03, 0x02, 0x01, 0x00]);
        assert!(peer(vec![garbage], ca.certificate()).user(0).is_err());
        assert!(peer(Vec::new(), ca.certificate()).user(0).is_err());
    }

    proptest! {
        #[test]
        fn a_changed_certificate_never_authenticates(index in 0_usize..4096, flip in 1_u8..=255) {
            use std::sync::LazyLock;
            static ISSUED: LazyLock<(String, CertificateDer<'static>)> =
                LazyLock::new(|| issue(&[(DnType::CommonName, "ann")], -60, 3600));
            let (ca, certificate) = &*ISSUED;
            let mut bytes = certificate.to_vec();
            let index = index % bytes.len();
            bytes[index] ^= flip;
            let user = peer(vec![CertificateDer::from(bytes)], ca).user(crate::time::system_clock());
            prop_assert!(user.is_err());
        }
    }
}
