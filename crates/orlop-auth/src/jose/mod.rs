//! Signed JSON Web Tokens (RFC 7515, 7517, 7518, 7519): the asymmetric part that Kubernetes uses.
//!
//! A [`Token`] is parsed first and trusted only once [`Token::verify`] has checked it with a [`PublicKey`]. There is
//! no algorithm `none` here, nor any symmetric one, and keys inside a token are ignored.

mod algorithm;
mod key_set;
mod pem;
mod public_key;
mod signing_key;
mod token;

pub use algorithm::Algorithm;
pub use key_set::KeySet;
pub use public_key::{KeyError, PublicKey};
pub use signing_key::SigningKey;
pub use token::{TOKEN_BYTES_MAX, Token, seconds};
