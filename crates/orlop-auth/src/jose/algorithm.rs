//! Signature algorithms.

use std::fmt;

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, VerificationAlgorithm,
};

/// A signature algorithm of RFC 7518.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    /// ECDSA with P-256 and SHA-256.
    Es256,
    /// ECDSA with P-384 and SHA-384.
    Es384,
    /// ECDSA with P-521 and SHA-512.
    Es512,
    /// RSA-PSS with SHA-256.
    Ps256,
    /// RSA-PSS with SHA-384.
    Ps384,
    /// RSA-PSS with SHA-512.
    Ps512,
    /// RSA PKCS#1 v1.5 with SHA-256.
    Rs256,
    /// RSA PKCS#1 v1.5 with SHA-384.
    Rs384,
    /// RSA PKCS#1 v1.5 with SHA-512.
    Rs512,
}

impl Algorithm {
    /// All algorithms, by name.
    pub const ALL: &[Self] = &[
        Self::Es256,
        Self::Es384,
        Self::Es512,
        Self::Ps256,
        Self::Ps384,
        Self::Ps512,
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
    ];

    /// Returns the algorithm of an `alg` header.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|algorithm| algorithm.name() == name)
    }

    /// Returns the value of the `alg` header.
    pub fn name(self) -> &'static str {
        match self {
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::Es512 => "ES512",
            Self::Ps256 => "PS256",
            Self::Ps384 => "PS384",
            Self::Ps512 => "PS512",
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
        }
    }

    pub(super) fn verification(self) -> &'static dyn VerificationAlgorithm {
        match self {
            Self::Es256 => &ECDSA_P256_SHA256_FIXED,
            Self::Es384 => &ECDSA_P384_SHA384_FIXED,
            Self::Es512 => &ECDSA_P521_SHA512_FIXED,
            Self::Ps256 => &RSA_PSS_2048_8192_SHA256,
            Self::Ps384 => &RSA_PSS_2048_8192_SHA384,
            Self::Ps512 => &RSA_PSS_2048_8192_SHA512,
            Self::Rs256 => &RSA_PKCS1_2048_8192_SHA256,
            Self::Rs384 => &RSA_PKCS1_2048_8192_SHA384,
            Self::Rs512 => &RSA_PKCS1_2048_8192_SHA512,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
