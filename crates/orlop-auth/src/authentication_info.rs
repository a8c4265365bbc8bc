//! The facts by which extension API servers authenticate clients and front proxies, as the ConfigMap
//! `kube-system/extension-apiserver-authentication` publishes them.

use std::collections::BTreeMap;

use rustls::pki_types::{CertificateDer, pem::PemObject};

use crate::{encoding::pem, time::system_clock};

/// Facts about front proxies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestHeaderInfo {
    /// CAs of front proxies, PEM.
    pub client_ca: String,
    /// Common names of front proxies; empty for any.
    pub allowed_names: Vec<String>,
    /// Headers with the user's name.
    pub username_headers: Vec<String>,
    /// Headers with the user's uid.
    pub uid_headers: Vec<String>,
    /// Headers with the user's groups.
    pub group_headers: Vec<String>,
    /// Prefixes of headers with the user's extra fields.
    pub extra_headers_prefix: Vec<String>,
}

/// Facts about clients and front proxies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthenticationInfo {
    /// CAs of client certificates, PEM.
    pub client_ca: String,
    /// Front proxies, if any are trusted.
    pub request_header: Option<RequestHeaderInfo>,
    /// Former CAs (PEM), which are not to be trusted any more, whoever published them.
    pub retired: String,
}

/// Data of the ConfigMap.
pub type Data = BTreeMap<String, String>;

impl AuthenticationInfo {
    /// Returns the data of the ConfigMap: these facts and those that other servers published. CAs that have expired or
    /// are retired are left out.
    pub fn merged_with(&self, published: &Data) -> Data {
        let known = |key: &str| published.get(key).map_or("", String::as_str);
        let mut data = Data::new();
        let mut set = |key: &str, value: String| drop(data.insert(key.to_owned(), value));
        let client_ca = merge_certificates(known("client-ca-file"), &self.client_ca, &self.retired);
        if !client_ca.is_empty() {
            set("client-ca-file", client_ca);
        }
        let own = self.request_header.clone().unwrap_or_default();
        let proxy_ca =
            merge_certificates(known("requestheader-client-ca-file"), &own.client_ca, &self.retired);
        if proxy_ca.is_empty() {
            return data;
        }
        set("requestheader-client-ca-file", proxy_ca);
        let lists = [
            ("requestheader-allowed-names", &own.allowed_names),
            ("requestheader-username-headers", &own.username_headers),
            ("requestheader-uid-headers", &own.uid_headers),
            ("requestheader-group-headers", &own.group_headers),
            ("requestheader-extra-headers-prefix", &own.extra_headers_prefix),
        ];
        for (key, own) in lists {
            let list = merge_names(known(key), own);
            if !(list.is_empty() && key == "requestheader-uid-headers") {
                // Strings always encode.
                set(key, serde_json::to_string(&list).unwrap_or_default());
            }
        }
        data
    }
}

/// Returns a published list and further names, each once. A list that cannot be read is as good as empty.
fn merge_names(published: &str, own: &[String]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let published: Vec<String> = serde_json::from_str(published).unwrap_or_default();
    for name in published.iter().chain(own) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// Returns the certificates of both, each once, that are neither expired nor retired.
fn merge_certificates(published: &str, own: &str, retired: &str) -> String {
    let all = |text: &str| -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(text.as_bytes()).filter_map(Result::ok).collect()
    };
    let (now, retired) = (system_clock(), all(retired));
    let mut merged: Vec<CertificateDer<'static>> = Vec::new();
    for certificate in all(published).into_iter().chain(all(own)) {
        let is_valid = x509_parser::parse_x509_certificate(&certificate)
            .is_ok_and(|(_, parsed)| parsed.validity().not_after.timestamp() >= now);
        if is_valid && !merged.contains(&certificate) && !retired.contains(&certificate) {
            merged.push(certificate);
        }
    }
    merged.iter().map(|certificate| pem("CERTIFICATE", certificate)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::Authority;

    #[test]
    fn published_facts_are_kept_and_merged() {
        let ca = || Authority::generate().unwrap().certificate().to_owned();
        let (one, other, proxies) = (ca(), ca(), ca());
        let header = |name: &str| vec![name.to_owned()];
        let info = AuthenticationInfo {
            client_ca: one.clone(),
            request_header: Some(RequestHeaderInfo {
                client_ca: proxies,
                allowed_names: header("front-proxy-client"),
                username_headers: header("X-Remote-User"),
                uid_headers: header("X-Remote-Uid"),
                group_headers: header("X-Remote-Group"),
                extra_headers_prefix: header("X-Remote-Extra-"),
            }),
            retired: String::new(),
        };
        let first = info.merged_with(&Data::new());
        assert_eq!(first.len(), 7);
        assert_eq!(first["requestheader-allowed-names"], "[\"front-proxy-client\"]");
        assert_eq!(info.merged_with(&first), first);

        let second = AuthenticationInfo { client_ca: other, ..AuthenticationInfo::default() };
        let both = second.merged_with(&first);
        assert_eq!(both["client-ca-file"].matches("BEGIN CERTIFICATE").count(), 2);
        let rotated = AuthenticationInfo { retired: one.clone(), ..second };
        assert_eq!(rotated.merged_with(&both)["client-ca-file"].trim(), rotated.client_ca.trim());
        assert_eq!(both["requestheader-username-headers"], "[\"X-Remote-User\"]");

        let nonsense = Data::from([
            ("client-ca-file".to_owned(), "nonsense".to_owned()),
            ("requestheader-allowed-names".to_owned(), "{".to_owned()),
        ]);
        assert_eq!(info.merged_with(&nonsense), first);
        assert_eq!(AuthenticationInfo::default().merged_with(&Data::new()), Data::new());
    }
}
