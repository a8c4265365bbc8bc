//! Chains of a server certificate that is itself a CA's.
//!
//! rustls refuses such a certificate before it looks for an issuer. This verifies its chain as Go does: issuers are CAs
//! that may sign, are valid now and allow servers by their extended key usage. Issuers with name constraints are not
//! used.

use rustls::{
    crypto::WebPkiSupportedAlgorithms,
    pki_types::{CertificateDer, UnixTime},
};
use x509_parser::{certificate::X509Certificate, parse_x509_certificate};

/// Maximum number of CAs above a server.
const DEPTH_MAX: usize = 8;
/// Maximum number of signatures that are verified for a server, as in Go.
const SIGNATURES_MAX: usize = 100;

/// Returns true if a CA of the bundle signed a certificate, directly or through intermediates.
pub(super) fn is_signed(
    certificate: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    bundle: &[CertificateDer<'_>],
    algorithms: &WebPkiSupportedAlgorithms,
    now: UnixTime,
) -> bool {
    let Some(server) = Certificate::parse(certificate).filter(|server| serves(&server.parsed)) else {
        return false;
    };
    let (roots, intermediates) = (issuers(bundle, now), issuers(intermediates, now));
    Search { roots, intermediates, algorithms, signatures: 0 }.reaches_root(&server, DEPTH_MAX)
}

/// A parsed certificate and the parts of its encoding that a signature covers.
struct Certificate<'a> {
    parsed: X509Certificate<'a>,
    /// The signed part.
    signed: &'a [u8],
    /// AlgorithmIdentifier of the signature.
    signature_algorithm: &'a [u8],
}

impl<'a> Certificate<'a> {
    fn parse(der: &'a [u8]) -> Option<Self> {
        let (_, parsed) = parse_x509_certificate(der).ok()?;
        let certificate = Element::read(der)?.content;
        let signed = Element::read(certificate)?;
        let signature_algorithm = Element::read(signed.rest)?.content;
        Some(Self { parsed, signed: signed.whole, signature_algorithm })
    }

    /// Returns true if the key of `issuer` signed this certificate.
    fn is_signed_by(&self, issuer: &Certificate<'_>, algorithms: &WebPkiSupportedAlgorithms) -> bool {
        let key = issuer.parsed.public_key();
        let Some(key_algorithm) = Element::read(key.raw).and_then(|key| Element::read(key.content)) else {
            return false;
        };
        algorithms.all.iter().any(|algorithm| {
            *algorithm.signature_alg_id() == *self.signature_algorithm
                && *algorithm.public_key_alg_id() == *key_algorithm.content
                && algorithm
                    .verify_signature(
                        &key.subject_public_key.data,
                        self.signed,
                        &self.parsed.signature_value.data,
                    )
                    .is_ok()
        })
    }
}

/// Search for a chain to a root.
struct Search<'a> {
    roots: Vec<Certificate<'a>>,
    intermediates: Vec<Certificate<'a>>,
    algorithms: &'a WebPkiSupportedAlgorithms,
    signatures: usize,
}

impl Search<'_> {
    fn reaches_root(&mut self, certificate: &Certificate<'_>, depth: usize) -> bool {
        let Self { roots, intermediates, algorithms, signatures } = self;
        let mut signs = |issuer: &Certificate<'_>| {
            if issuer.parsed.subject().as_raw() != certificate.parsed.issuer().as_raw() {
                return false;
            }
            *signatures += 1;
            *signatures <= SIGNATURES_MAX && certificate.is_signed_by(issuer, algorithms)
        };
        if roots.iter().any(&mut signs) {
            return true;
        }
        let Some(depth) = depth.checked_sub(1) else { return false };
        let above: Vec<usize> =
            (0..intermediates.len()).filter(|index| signs(&intermediates[*index])).collect();
        above.into_iter().any(|index| {
            // Taken out, so that no chain has a certificate twice.
            let issuer = self.intermediates.remove(index);
            let reaches = self.reaches_root(&issuer, depth);
            self.intermediates.insert(index, issuer);
            reaches
        })
    }
}

/// Returns those of some certificates that may issue servers' certificates now.
fn issuers<'a>(certificates: &'a [CertificateDer<'_>], now: UnixTime) -> Vec<Certificate<'a>> {
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let may_issue = |certificate: &Certificate<'_>| {
        let parsed = &certificate.parsed;
        let validity = parsed.validity();
        let is_valid = (validity.not_before.timestamp()..=validity.not_after.timestamp()).contains(&now);
        let signs =
            parsed.key_usage().is_ok_and(|usage| usage.is_none_or(|usage| usage.value.key_cert_sign()));
        let is_unconstrained = matches!(parsed.name_constraints(), Ok(None));
        parsed.is_ca() && is_valid && signs && is_unconstrained && serves(parsed)
    };
    certificates.iter().filter_map(|der| Certificate::parse(der)).filter(may_issue).collect()
}

/// Returns true if the extended key usage, if there is one, allows servers.
fn serves(certificate: &X509Certificate<'_>) -> bool {
    certificate
        .extended_key_usage()
        .is_ok_and(|usage| usage.is_none_or(|usage| usage.value.any || usage.value.server_auth))
}

/// An element of DER.
struct Element<'a> {
    /// The element with its header.
    whole: &'a [u8],
    content: &'a [u8],
    /// The bytes after it.
    rest: &'a [u8],
}

impl<'a> Element<'a> {
    /// Reads an element with a tag of one byte.
    fn read(der: &'a [u8]) -> Option<Self> {
        let first = *der.get(1)?;
        let (header, length) = match usize::from(first) {
            length @ 0..0x80 => (2, length),
            coded => {
                let bytes = der.get(2..2 + (coded - 0x80)).filter(|bytes| (1..=4).contains(&bytes.len()))?;
                let length = bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
                (2 + bytes.len(), length)
            }
        };
        let end = header.checked_add(length)?;
        Some(Self { whole: der.get(..end)?, content: der.get(header..end)?, rest: der.get(end..)? })
    }
}
