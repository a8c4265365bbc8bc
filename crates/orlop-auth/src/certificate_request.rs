//! Signing of certificate requests: the subject and the key are the request's, everything else is the signer's.
//!
//! Certificates are encoded here and not by `rcgen`, whose names hold one attribute of a kind: a user may be in several
//! groups, which are organizations of the subject.
//!
//! The subject is encoded anew. Readers of certificates differ in what they make of several common names, of text in rare
//! encodings and of unknown attributes: all of them are to see the subject that was checked.

use std::time::Duration;

use orlop_api::time::Time;
use rcgen::{CertificateSigningRequestParams, KeyPair, SigningKey};
use rustls::pki_types::CertificateSigningRequestDer;
use x509_parser::{
    certification_request::X509CertificationRequest, extensions::ParsedExtension, pem::Pem, prelude::FromDer,
    x509::X509Name,
};

use crate::encoding::{der, pem};

/// Attributes of a subject that certificates get, as in Kubernetes, by the last byte of their object identifier (2.5.4.x):
/// country, organization, organizational unit, locality, province, street address, postal code, common name, serial
/// number. The uid of a user is not one of them: a requester cannot choose it.
const ATTRIBUTES: [u8; 9] = [6, 10, 11, 7, 8, 9, 17, COMMON_NAME, 5];
const COMMON_NAME: u8 = 3;
const ORGANIZATION: u8 = 10;

/// Clocks differ; a new certificate must be valid everywhere at once.
const BACKDATE_SECONDS: i64 = 5 * 60;
/// Larger requests are refused.
const REQUEST_BYTES_MAX: usize = 64 << 10;

/// A certificate request cannot be signed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RequestError(pub String);

/// A certificate request whose signature is valid: its maker holds the key.
#[derive(Clone, Debug)]
pub struct CertificateRequest {
    /// DER of the subject: of the attributes that certificates get.
    subject: Vec<u8>,
    /// DER of the public key.
    spki: Vec<u8>,
    /// DER of the subject alternative names, as in the extension.
    alternative_names: Option<Vec<u8>>,
    /// Common name.
    pub common_name: String,
    /// Organizations.
    pub organizations: Vec<String>,
    /// True if there are names of hosts or addresses among the alternative names.
    pub has_host_names: bool,
    /// True if there are e-mail addresses or URIs among the alternative names.
    pub has_other_names: bool,
}

/// A new client's key, and the request for its certificate. Not `Debug` by derive: the key stays out of logs.
pub struct ClientKey {
    /// The private key, PEM.
    pub key: String,
    /// The request, PEM.
    pub request: String,
}

impl std::fmt::Debug for ClientKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientKey").finish_non_exhaustive()
    }
}

impl ClientKey {
    /// Generates a key for a user in groups.
    pub fn generate(name: &str, groups: &[String]) -> Result<Self, RequestError> {
        let key = KeyPair::generate().map_err(|error| RequestError(error.to_string()))?;
        let request = CertificateRequest::of_client(name, groups, &key).to_pem(&key)?;
        Ok(Self { key: key.serialize_pem(), request })
    }
}

/// Usages of a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usages {
    /// Bits of the key usage extension, the first is the highest: digital signature, non-repudiation, key
    /// encipherment, data encipherment, key agreement, certificate signing.
    key_usage: u8,
    client: bool,
    server: bool,
}

impl Usages {
    /// Returns the usages of a CertificateSigningRequest's `spec.usages`; an error names one that is not supported.
    pub fn parse<S: AsRef<str>>(usages: &[S]) -> Result<Self, RequestError> {
        let mut parsed = Self::default();
        for usage in usages {
            match usage.as_ref() {
                "signing" | "digital signature" => parsed.key_usage |= 0x80,
                "content commitment" => parsed.key_usage |= 0x40,
                "key encipherment" => parsed.key_usage |= 0x20,
                "data encipherment" => parsed.key_usage |= 0x10,
                "key agreement" => parsed.key_usage |= 0x08,
                "client auth" => parsed.client = true,
                "server auth" => parsed.server = true,
                other => return Err(RequestError(format!("unsupported usage {other:?}"))),
            }
        }
        Ok(parsed)
    }

    /// Returns the usages of a client's certificate.
    pub fn client() -> Self {
        Self { key_usage: 0xa0, client: true, server: false }
    }
}

impl CertificateRequest {
    /// Parses a request in PEM, and checks its signature.
    pub fn parse(pem: &[u8]) -> Result<Self, RequestError> {
        let invalid = |why: &str| RequestError(format!("unable to parse csr: {why}"));
        if pem.len() > REQUEST_BYTES_MAX {
            return Err(invalid("it is too large"));
        }
        let section = Pem::iter_from_buffer(pem).next().and_then(Result::ok);
        let section = section.filter(|section| {
            matches!(section.label.as_str(), "CERTIFICATE REQUEST" | "NEW CERTIFICATE REQUEST")
        });
        let der = section.ok_or_else(|| invalid("PEM block type must be CERTIFICATE REQUEST"))?.contents;
        match CertificateSigningRequestParams::from_der(&CertificateSigningRequestDer::from(der.as_slice())) {
            // Checked after the signature: what else a request asks for is not the signer's concern.
            Ok(_) | Err(rcgen::Error::UnsupportedExtension | rcgen::Error::CouldNotParseCertificate) => {}
            Err(error) => return Err(invalid(&error.to_string())),
        }
        let (_, request) =
            X509CertificationRequest::from_der(&der).map_err(|_| invalid("malformed request"))?;
        let info = &request.certification_request_info;
        let subject = Subject::of(&info.subject).map_err(invalid)?;
        let mut parsed = Self {
            subject: subject.to_der(),
            spki: info.subject_pki.raw.to_vec(),
            alternative_names: None,
            common_name: subject.first(COMMON_NAME).unwrap_or_default().to_owned(),
            organizations: subject.all(ORGANIZATION).map(str::to_owned).collect(),
            has_host_names: false,
            has_other_names: false,
        };
        for extension in request.requested_extensions().into_iter().flatten() {
            if let ParsedExtension::SubjectAlternativeName(names) = extension {
                parsed.set_alternative_names(&names.general_names)?;
            }
        }
        Ok(parsed)
    }

    fn set_alternative_names(
        &mut self,
        names: &[x509_parser::extensions::GeneralName<'_>],
    ) -> Result<(), RequestError> {
        use x509_parser::extensions::GeneralName;
        let mut encoded = Vec::new();
        for name in names {
            let (tag, content) = match name {
                GeneralName::RFC822Name(name) => (0x81, name.as_bytes()),
                GeneralName::DNSName(name) => (0x82, name.as_bytes()),
                GeneralName::URI(name) => (0x86, name.as_bytes()),
                GeneralName::IPAddress(bytes) => (0x87, *bytes),
                _ => return Err(RequestError("unsupported subject alternative name".to_owned())),
            };
            match tag {
                0x82 | 0x87 => self.has_host_names = true,
                _ => self.has_other_names = true,
            }
            encoded.extend(der(tag, content));
        }
        self.alternative_names = (!encoded.is_empty()).then(|| der(0x30, &encoded));
        Ok(())
    }

    /// Returns the request of a client with a key: its name and its groups.
    pub fn of_client(name: &str, groups: &[String], key: &KeyPair) -> Self {
        let groups_of = groups.iter().map(|group| (ORGANIZATION, group.clone()));
        let subject = Subject(groups_of.chain([(COMMON_NAME, name.to_owned())]).collect());
        Self {
            subject: subject.to_der(),
            spki: rcgen::PublicKeyData::subject_public_key_info(key),
            alternative_names: None,
            common_name: name.to_owned(),
            organizations: groups.to_vec(),
            has_host_names: false,
            has_other_names: false,
        }
    }

    /// Returns the request in PEM, signed with its key.
    pub fn to_pem(&self, key: &KeyPair) -> Result<String, RequestError> {
        let unusable = |why: String| RequestError(format!("unable to sign: {why}"));
        let info = [der(0x02, &[0]), self.subject.clone(), self.spki.clone(), der(0xa0, &[])];
        let info = der(0x30, &info.concat());
        let algorithm = signature_algorithm(key).map_err(|why| unusable(why.to_owned()))?;
        let signature = key.sign(&info).map_err(|error| unusable(error.to_string()))?;
        let bits = der(0x03, &[&[0], signature.as_slice()].concat());
        Ok(pem("CERTIFICATE REQUEST", &der(0x30, &[info, algorithm, bits].concat())))
    }

    /// Returns a certificate (PEM) that a CA signs.
    pub fn sign(
        &self,
        ca_certificate: &str,
        ca_key: &KeyPair,
        usages: Usages,
        lifetime: Duration,
        now: i64,
    ) -> Result<String, RequestError> {
        let unusable = |why: String| RequestError(format!("unable to sign: {why}"));
        let ca = Pem::iter_from_buffer(ca_certificate.as_bytes()).next().and_then(Result::ok);
        let ca = ca.ok_or_else(|| unusable("the CA is not PEM".to_owned()))?;
        let (_, ca) =
            x509_parser::parse_x509_certificate(&ca.contents).map_err(|error| unusable(error.to_string()))?;
        let algorithm = signature_algorithm(ca_key).map_err(|why| unusable(why.to_owned()))?;
        // Not longer than the CA itself.
        let until = (now + lifetime.as_secs().cast_signed()).min(ca.validity().not_after.timestamp());
        let mut serial = rand::random::<[u8; 16]>();
        // Positive, and without leading zeros.
        serial[0] = serial[0] & 0x7f | 0x40;
        let validity = [time(now - BACKDATE_SECONDS), time(until)].concat();
        let body = [
            der(0xa0, &der(0x02, &[2])),
            der(0x02, &serial),
            algorithm.clone(),
            ca.subject().as_raw().to_vec(),
            der(0x30, &validity),
            self.subject.clone(),
            self.spki.clone(),
            der(0xa3, &der(0x30, &self.extensions(usages, &ca))),
        ];
        let body = der(0x30, &body.concat());
        let signature = ca_key.sign(&body).map_err(|error| unusable(error.to_string()))?;
        let bits = der(0x03, &[&[0], signature.as_slice()].concat());
        let certificate = der(0x30, &[body, algorithm, bits].concat());
        Ok(pem("CERTIFICATE", &certificate))
    }

    fn extensions(&self, usages: Usages, ca: &x509_parser::certificate::X509Certificate<'_>) -> Vec<u8> {
        let extension = |oid: &[u8], critical: bool, value: &[u8]| {
            let critical = if critical { vec![0x01, 0x01, 0xff] } else { Vec::new() };
            der(0x30, &[der(0x06, oid), critical, der(0x04, value)].concat())
        };
        let mut all = Vec::new();
        if usages.key_usage != 0 {
            let unused = usages.key_usage.trailing_zeros() as u8;
            all.extend(extension(&[0x55, 0x1d, 0x0f], true, &der(0x03, &[unused, usages.key_usage])));
        }
        let purposes: Vec<u8> = [(usages.client, 2), (usages.server, 1)]
            .iter()
            .filter(|(wanted, _)| *wanted)
            .flat_map(|(_, purpose)| der(0x06, &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, *purpose]))
            .collect();
        if !purposes.is_empty() {
            all.extend(extension(&[0x55, 0x1d, 0x25], false, &der(0x30, &purposes)));
        }
        // Not a CA.
        all.extend(extension(&[0x55, 0x1d, 0x13], true, &der(0x30, &[])));
        let key_id = ca.iter_extensions().find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0),
            _ => None,
        });
        if let Some(key_id) = key_id {
            all.extend(extension(&[0x55, 0x1d, 0x23], false, &der(0x30, &der(0x80, key_id))));
        }
        if let Some(names) = &self.alternative_names {
            all.extend(extension(&[0x55, 0x1d, 0x11], false, names));
        }
        all
    }
}

/// Attributes of a subject by the last byte of their object identifier, in order.
struct Subject(Vec<(u8, String)>);

impl Subject {
    /// Returns the attributes of a name that certificates get. Of several common names the last counts, as in Go.
    fn of(name: &X509Name<'_>) -> Result<Self, &'static str> {
        let mut all = Vec::new();
        for attribute in name.iter_attributes() {
            let Some(id) = attribute.attr_type().as_bytes().strip_prefix(&[0x55, 0x04]) else { continue };
            let Some(id) = ATTRIBUTES.iter().find(|known| id == [**known]) else { continue };
            // Others may read what is no text here, such as a BMPString: nothing unread is signed.
            let text = attribute.as_str().map_err(|_| "the subject has an attribute that is not text")?;
            if *id == COMMON_NAME {
                all.retain(|(other, _)| *other != COMMON_NAME);
            }
            all.push((*id, text.to_owned()));
        }
        Ok(Self(all))
    }

    fn all(&self, id: u8) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(other, _)| *other == id).map(|(_, text)| text.as_str())
    }

    fn first(&self, id: u8) -> Option<&str> {
        self.all(id).next()
    }

    fn to_der(&self) -> Vec<u8> {
        const UTF8_STRING: u8 = 0x0c;
        let attribute = |(id, text): &(u8, String)| {
            let pair = [der(0x06, &[0x55, 0x04, *id]), der(UTF8_STRING, text.as_bytes())].concat();
            der(0x31, &der(0x30, &pair))
        };
        der(0x30, &self.0.iter().flat_map(attribute).collect::<Vec<u8>>())
    }
}

/// Returns the AlgorithmIdentifier of a key's signatures.
fn signature_algorithm(key: &KeyPair) -> Result<Vec<u8>, &'static str> {
    const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03];
    let algorithm = rcgen::PublicKeyData::algorithm(key);
    let ecdsa = |hash: u8| der(0x30, &der(0x06, &[ECDSA, &[hash]].concat()));
    let rsa = |hash: u8| {
        let oid = der(0x06, &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, hash]);
        der(0x30, &[oid, vec![0x05, 0x00]].concat())
    };
    if algorithm == &rcgen::PKCS_ECDSA_P256_SHA256 {
        Ok(ecdsa(2))
    } else if algorithm == &rcgen::PKCS_ECDSA_P384_SHA384 {
        Ok(ecdsa(3))
    } else if algorithm == &rcgen::PKCS_ECDSA_P521_SHA512 {
        Ok(ecdsa(4))
    } else if algorithm == &rcgen::PKCS_RSA_SHA256 {
        Ok(rsa(0x0b))
    } else if algorithm == &rcgen::PKCS_ED25519 {
        Ok(der(0x30, &der(0x06, &[0x2b, 0x65, 0x70])))
    } else {
        Err("the CA's key is of an unsupported type")
    }
}

/// Returns a time: UTCTime to 2049, GeneralizedTime from then on.
fn time(seconds: i64) -> Vec<u8> {
    let text = Time::from_unix(seconds).to_string();
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    match digits.strip_prefix("20").filter(|rest| rest < &"50") {
        Some(short) => der(0x17, format!("{short}Z").as_bytes()),
        None => der(0x18, format!("{digits}Z").as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DnType, DnValue};
    use rustls::pki_types::{CertificateDer, UnixTime, pem::PemObject};

    use super::*;
    use crate::{authentication::PeerCertificate, pki::Authority, time::system_clock};

    const HOUR: Duration = Duration::from_secs(3600);

    fn user(ca: &Authority, certificate: &str) -> crate::User {
        use std::sync::Arc;

        use orlop_net::{ClientVerifier, PemSource, PresentedCertificate};
        let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
        let verifier = ClientVerifier::new(vec![PemSource::Inline(ca.certificate().to_owned())]).unwrap();
        verifier.verify(&chain, UnixTime::now()).unwrap();
        let peer = PeerCertificate::new(PresentedCertificate { chain, verifier: Arc::new(verifier) });
        (*peer.user(system_clock()).unwrap().unwrap()).clone()
    }

    fn sign(ca: &Authority, request: &CertificateRequest, usages: Usages) -> String {
        let key = KeyPair::from_pem(&ca.credential().key).unwrap();
        request.sign(ca.certificate(), &key, usages, HOUR, system_clock()).unwrap()
    }

    #[test]
    fn certificates_of_clients_have_all_their_groups() {
        let ca = Authority::generate().unwrap();
        let groups = ["dev".to_owned(), "ops".to_owned(), "qa".to_owned()];
        let key = KeyPair::generate().unwrap();
        let request = CertificateRequest::of_client("ann", &groups, &key).to_pem(&key).unwrap();
        let request = CertificateRequest::parse(request.as_bytes()).unwrap();
        let user = user(&ca, &sign(&ca, &request, Usages::client()));
        assert_eq!((user.name.as_str(), &user.groups[..]), ("ann", &groups[..]));
    }

    #[test]
    fn requests_are_signed_with_their_subject_key_and_names() {
        let ca = Authority::generate().unwrap();
        let mut params = CertificateParams::new(vec!["a.example.org".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params.distinguished_name.push(DnType::CommonName, "system:node:a");
        let key = KeyPair::generate().unwrap();
        let pem = params.serialize_request(&key).unwrap().pem().unwrap();
        let request = CertificateRequest::parse(pem.as_bytes()).unwrap();
        assert_eq!(request.common_name, "system:node:a");
        assert_eq!(request.organizations, ["system:nodes"]);
        assert!(request.has_host_names && !request.has_other_names);
        let usages = Usages::parse(&["digital signature", "key encipherment", "client auth"]).unwrap();
        let certificate = sign(&ca, &request, usages);
        assert_eq!(user(&ca, &certificate).groups, ["system:nodes"]);
        let der = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
        let (_, parsed) = x509_parser::parse_x509_certificate(&der).unwrap();
        assert_eq!(parsed.public_key().raw, rcgen::PublicKeyData::subject_public_key_info(&key));
        assert!(parsed.subject_alternative_name().unwrap().is_some());
        assert!(!parsed.is_ca());
        assert!(parsed.validity().not_after.timestamp() <= system_clock() + 3600);
    }

    #[test]
    fn forged_and_malformed_requests_are_refused() {
        let key = KeyPair::generate().unwrap();
        let request = CertificateParams::default().serialize_request(&key).unwrap();
        let mut forged = request.der().to_vec();
        let last = forged.len() - 5;
        forged[last] ^= 1;
        assert!(CertificateRequest::parse(pem("CERTIFICATE REQUEST", &forged).as_bytes()).is_err());
        let der = request.der().to_vec();
        assert!(CertificateRequest::parse(pem("CERTIFICATE REQUEST", &der).as_bytes()).is_ok());
        for bad in [String::new(), "x".to_owned(), pem("CERTIFICATE", &der), "x".repeat(100_000)] {
            assert!(CertificateRequest::parse(bad.as_bytes()).is_err());
        }
        assert!(Usages::parse(&["cert sign"]).is_err());
    }

    /// Returns a request whose subject has attributes in any number and encoding.
    fn request_with(attributes: &[(&[u64], DnValue)]) -> Result<CertificateRequest, RequestError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (index, (oid, value)) in attributes.iter().enumerate() {
            // A name holds one attribute of a type, and knows some types by two names.
            let kind = match (*oid, index) {
                ([2, 5, 4, 3], 0) => DnType::CommonName,
                ([2, 5, 4, 10], 0) => DnType::OrganizationName,
                (other, _) => DnType::CustomDnType(other.to_vec()),
            };
            params.distinguished_name.push(kind, value.clone());
        }
        let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
        CertificateRequest::parse(pem.as_bytes())
    }

    #[test]
    fn unreadable_attributes_of_a_subject_are_never_signed() {
        const ORGANIZATION: &[u64] = &[2, 5, 4, 10];
        const NAME: &[u64] = &[2, 5, 4, 3];
        let text = |text: &str| DnValue::Utf8String(text.to_owned());
        for hidden in [
            DnValue::BmpString(rcgen::string::BmpString::try_from("system:masters").unwrap()),
            DnValue::TeletexString(rcgen::string::TeletexString::try_from("system:masters").unwrap()),
        ] {
            // The first organization is what a kubelet may ask for.
            let kubelet = [(ORGANIZATION, text("system:nodes")), (ORGANIZATION, hidden.clone())];
            let refused = request_with(&kubelet).unwrap_err();
            assert!(refused.0.contains("not text"), "{refused}");
            let named = [(NAME, hidden), (ORGANIZATION, text("system:nodes")), (NAME, text("system:node:a"))];
            assert!(request_with(&named).is_err());
        }
    }

    #[test]
    fn certificate_has_the_subject_that_was_checked_and_no_other() {
        let text = |text: &str| DnValue::Utf8String(text.to_owned());
        let (name, uid): (&[u64], &[u64]) = (&[2, 5, 4, 3], &[1, 3, 6, 1, 4, 1, 57683, 2]);
        let attributes = [
            (name, text("kubernetes-admin")),
            (&[2, 5, 4, 10][..], text("system:nodes")),
            (uid, text("uid-of-somebody-else")),
            (&[2, 5, 4, 11][..], text("unit")),
            (name, text("system:node:a")),
        ];
        let request = request_with(&attributes).unwrap();
        assert_eq!(request.common_name, "system:node:a");
        let ca = Authority::generate().unwrap();
        let certificate = sign(&ca, &request, Usages::client());
        let signed = user(&ca, &certificate);
        assert_eq!((signed.name.as_str(), signed.uid.as_str()), ("system:node:a", ""));
        assert_eq!(signed.groups, ["system:nodes"]);
        let der = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
        let (_, parsed) = x509_parser::parse_x509_certificate(&der).unwrap();
        let names: Vec<_> = parsed.subject().iter_common_name().map(|name| name.as_str().unwrap()).collect();
        assert_eq!(names, ["system:node:a"]);
        assert_eq!(parsed.subject().iter_attributes().count(), 3);
    }

    proptest! {
        #[test]
        fn a_changed_request_is_refused_or_means_the_same(index in 0_usize..4096, flip in 1_u8..=255) {
            use std::sync::LazyLock;
            static REQUEST: LazyLock<Vec<u8>> = LazyLock::new(|| {
                let key = KeyPair::generate().unwrap();
                CertificateParams::default().serialize_request(&key).unwrap().der().to_vec()
            });
            let parse = |der: &[u8]| CertificateRequest::parse(pem("CERTIFICATE REQUEST", der).as_bytes());
            let original = parse(&REQUEST).unwrap();
            let mut bytes = REQUEST.clone();
            let index = index % bytes.len();
            bytes[index] ^= flip;
            if let Ok(changed) = parse(&bytes) {
                prop_assert_eq!((changed.subject, changed.spki), (original.subject, original.spki));
            }
        }
    }
}
