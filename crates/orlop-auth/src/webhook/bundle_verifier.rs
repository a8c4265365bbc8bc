//! Verification of servers against a bundle of CAs, as lenient as Go's.
//!
//! Webhooks often serve with a certificate that is its own CA, or is listed in the bundle itself. Go accepts a server
//! certificate that is in the pool or signed by a CA of it, whatever its basic constraints are; rustls does not use a
//! CA's certificate for a server. Name and dates are verified in any case.

use std::sync::Arc;

use rustls::{
    CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};
use x509_parser::parse_x509_certificate;

use super::ca_chain;

/// Verifies servers against a bundle.
#[derive(Debug)]
pub(super) struct BundleVerifier {
    /// `None` if no certificate of the bundle can be a CA.
    chains: Option<Arc<WebPkiServerVerifier>>,
    bundle: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl BundleVerifier {
    /// Returns the verifier of a bundle. `roots` has those of its certificates that can be CAs.
    pub(super) fn new(
        roots: RootCertStore,
        bundle: Vec<CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, String> {
        let chains = match roots.is_empty() {
            true => None,
            false => Some(
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
                    .build()
                    .map_err(|error| error.to_string())?,
            ),
        };
        Ok(Self { chains, bundle, provider })
    }
}

impl ServerCertVerifier for BundleVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.bundle.iter().any(|trusted| **trusted == **end_entity) {
            verify_dates(end_entity, now)?;
            verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
            return Ok(ServerCertVerified::assertion());
        }
        let Some(chains) = &self.chains else { return Err(CertificateError::UnknownIssuer.into()) };
        match chains.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(error) if is_ca(end_entity) => {
                let algorithms = &self.provider.signature_verification_algorithms;
                if !ca_chain::is_signed(end_entity, intermediates, &self.bundle, algorithms, now) {
                    return Err(error);
                }
                verify_dates(end_entity, now)?;
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn is_ca(certificate: &CertificateDer<'_>) -> bool {
    parse_x509_certificate(certificate).is_ok_and(|(_, parsed)| parsed.is_ca())
}

fn verify_dates(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let (_, parsed) = parse_x509_certificate(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let validity = parsed.validity();
    let (seconds, time) = (now.as_secs() as i64, |seconds: i64| {
        UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds.max(0) as u64))
    });
    let (not_before, not_after) = (validity.not_before.timestamp(), validity.not_after.timestamp());
    if seconds < not_before {
        return Err(CertificateError::NotValidYetContext { time: now, not_before: time(not_before) }.into());
    }
    if seconds > not_after {
        return Err(CertificateError::ExpiredContext { time: now, not_after: time(not_after) }.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

    use super::*;

    /// Returns a self-signed server certificate that is a CA, as `openssl req -x509` makes them.
    fn self_signed(name: &str) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    fn verify(
        bundle: &[CertificateDer<'static>],
        server: &CertificateDer<'_>,
        year: u64,
    ) -> Result<(), Error> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(bundle.iter().cloned());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = BundleVerifier::new(roots, bundle.to_vec(), provider).unwrap();
        let name = ServerName::try_from("hook.default.svc").unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs((year - 1970) * 31_557_600));
        verifier.verify_server_cert(server, &[], &name, &[], now).map(drop)
    }

    #[test]
    fn server_certificate_in_the_bundle_is_trusted_though_it_is_a_ca() {
        let (hook, other) = (self_signed("hook.default.svc"), self_signed("other.default.svc"));
        assert_eq!(verify(&[other.clone(), hook.clone()], &hook, 2026), Ok(()));
        assert!(verify(std::slice::from_ref(&other), &hook, 2026).is_err(), "it is not in the bundle");
        assert!(
            matches!(
                verify(&[hook.clone(), other.clone()], &other, 2026),
                Err(Error::InvalidCertificate(CertificateError::NotValidForNameContext { .. }))
            ),
            "the name is verified"
        );
        assert!(
            matches!(
                verify(std::slice::from_ref(&hook), &hook, 1971),
                Err(Error::InvalidCertificate(CertificateError::NotValidYetContext { .. }))
            ),
            "and the dates"
        );
    }

    #[test]
    fn server_certificate_that_is_a_ca_is_trusted_if_a_ca_of_the_bundle_signed_it() {
        let authority = |name: &str| {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let key = KeyPair::generate().unwrap();
            (params.self_signed(&key).unwrap(), Issuer::new(params, key))
        };
        let (root, root_issuer) = authority("root");
        let (impostor, _) = authority("root");
        let mut params = CertificateParams::new(vec!["hook.default.svc".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let key = KeyPair::generate().unwrap();
        let hook = params.signed_by(&key, &root_issuer).unwrap();
        assert_eq!(verify(&[root.der().clone()], hook.der(), 2026), Ok(()));
        assert!(
            verify(&[impostor.der().clone()], hook.der(), 2026).is_err(),
            "another key has not signed it"
        );
        assert!(verify(&[root.der().clone()], hook.der(), 1971).is_err(), "it is not valid yet");
        let mut params = CertificateParams::new(vec!["other.default.svc".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let other = params.signed_by(&key, &root_issuer).unwrap();
        assert!(verify(&[root.der().clone()], other.der(), 2026).is_err(), "it is of another name");
    }

    #[test]
    fn certificate_that_cannot_be_parsed_leaves_the_others() {
        let hook = self_signed("hook.default.svc");
        let broken = CertificateDer::from(vec![1, 2, 3]);
        assert_eq!(verify(&[broken, hook.clone()], &hook, 2026), Ok(()));
    }
}
