//! Keys of a cluster that are rotated: its CAs and its service account key.

use super::{ClusterSecrets, Error, rotation::Step};
use crate::auth::pki::{self, Authority, Credential};

/// Something that is rotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotated {
    /// The CA of serving and client certificates.
    Ca,
    /// The CA of this cluster's certificate towards extension API servers.
    FrontProxyCa,
    /// The key that signs service account tokens.
    ServiceAccountKey,
}

impl ClusterSecrets {
    /// Takes the next step of a rotation.
    pub fn advance(&mut self, rotated: Rotated) -> Result<Step, Error> {
        match rotated {
            Rotated::Ca => {
                let generate = || Ok(Authority::generate()?.credential().clone());
                let (step, retired) = self.ca_rotation.advance(&mut self.ca, generate)?;
                self.retired_cas.extend(retired.map(|retired: Credential| retired.certificate));
                Ok(step)
            }
            Rotated::FrontProxyCa => {
                let generate = || Ok(Authority::generate()?.credential().clone());
                let (step, retired) =
                    self.front_proxy_ca_rotation.advance(&mut self.front_proxy_ca, generate)?;
                self.retired_front_proxy_cas.extend(retired.map(|retired: Credential| retired.certificate));
                Ok(step)
            }
            Rotated::ServiceAccountKey => {
                let (step, _) = self
                    .service_account_key_rotation
                    .advance(&mut self.service_account_key, || Ok(pki::generate_key()?))?;
                self.service_account_key_rotations += u32::from(step == Step::Activated);
                Ok(step)
            }
        }
    }

    /// Returns the CAs (PEM) that certificates are accepted from. The first one signs.
    pub fn trusted_cas(&self) -> String {
        let mut all = self.ca.certificate.clone();
        if let Some(other) = self.ca_rotation.other() {
            all.push_str(&other.certificate);
        }
        all
    }

    /// Returns the CAs (PEM) by which extension API servers are to trust this cluster. The first one signs.
    pub fn trusted_front_proxy_cas(&self) -> String {
        let other = self.front_proxy_ca_rotation.other();
        [self.front_proxy_ca.certificate.as_str(), other.map_or("", |other| &other.certificate)].concat()
    }

    /// Returns former CAs (PEM) of both sorts, which nobody is to trust any more.
    pub fn retired(&self) -> String {
        [self.retired_cas.concat(), self.retired_front_proxy_cas.concat()].concat()
    }

    /// Returns the service account keys (PEM) that tokens are accepted from, besides the one that signs.
    pub fn accepted_service_account_keys(&self) -> Option<&str> {
        self.service_account_key_rotation.other().map(String::as_str)
    }

    /// Returns true if a file with CAs (PEM) is of this cluster.
    pub fn knows_ca(&self, file: &str) -> bool {
        let known = [self.trusted_cas(), self.retired_cas.concat()].concat();
        pki::share_a_certificate(&known, file)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn both_keys_are_accepted_between_the_first_and_the_last_step() {
        let mut secrets = ClusterSecrets::generate(None, None, "token").unwrap();
        let (first_ca, first_key) = (secrets.ca.certificate.clone(), secrets.service_account_key.clone());
        let first_proxy_ca = secrets.front_proxy_ca.certificate.clone();
        let steps = [Step::Prepared, Step::Activated, Step::Finished];
        for (index, step) in steps.into_iter().enumerate() {
            assert_eq!(secrets.advance(Rotated::Ca).unwrap(), step);
            assert_eq!(secrets.advance(Rotated::ServiceAccountKey).unwrap(), step);
            assert_eq!(secrets.advance(Rotated::FrontProxyCa).unwrap(), step);
            // What servers keep of it is the same.
            secrets = serde_json::from_slice(&serde_json::to_vec(&secrets).unwrap()).unwrap();
            assert_eq!(secrets.ca.certificate == first_ca, index == 0, "{step:?}");
            let trusts_first = secrets.trusted_cas().contains(first_ca.trim());
            assert_eq!(trusts_first, step != Step::Finished, "{step:?}");
            let accepts_first = secrets.service_account_key == first_key
                || secrets.accepted_service_account_keys() == Some(first_key.as_str());
            assert_eq!(accepts_first, step != Step::Finished, "{step:?}");
            let trusts_proxy = secrets.trusted_front_proxy_cas().contains(first_proxy_ca.trim());
            assert_eq!(trusts_proxy, step != Step::Finished, "{step:?}");
            assert_eq!(secrets.retired().contains(first_proxy_ca.trim()), !trusts_proxy);
            assert!(secrets.knows_ca(&first_ca), "a file of the cluster is known for ever");
        }
        assert_eq!(
            (secrets.trusted_cas(), secrets.service_account_key_rotations),
            (secrets.ca.certificate.clone(), 1)
        );
        let stranger = ClusterSecrets::generate(None, None, "token").unwrap();
        assert!(!secrets.knows_ca(&stranger.ca.certificate));
    }
}
