//! The index of version 3 documents.

use std::collections::HashMap;

use serde::Deserialize;

/// Reads an index. Returns the address of each group version's document, as far as it is the one that clients would ask
/// for: an extension API server cannot send them elsewhere, nor serve documents of other group versions.
pub fn parse_index(
    document: &[u8],
    wanted: impl Fn(&str) -> bool,
) -> Result<HashMap<String, String>, serde_json::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Entry {
        #[serde(rename = "serverRelativeURL")]
        server_relative_url: String,
    }
    #[derive(Deserialize)]
    struct Index {
        paths: HashMap<String, Entry>,
    }
    let index: Index = serde_json::from_slice(document)?;
    let is_own = |path: &str, url: &str| {
        let rest = url.strip_prefix("/openapi/v3/").and_then(|rest| rest.strip_prefix(path));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('?'))
    };
    let mut addresses = HashMap::new();
    for (path, entry) in index.paths {
        if wanted(&path) && is_own(&path, &entry.server_relative_url) {
            addresses.insert(path, entry.server_relative_url);
        }
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_own_documents_are_indexed() {
        let url = |url: &str| json!({"serverRelativeURL": url});
        let document = json!({"paths": {
            "apis/a/v1": url("/openapi/v3/apis/a/v1?hash=1"),
            "apis/a/v2": url("https://evil.example/openapi/v3/apis/a/v2"),
            "apis/a/v3": url("/openapi/v3/apis/a/v31"),
            "api/v1": url("/openapi/v3/api/v1"),
        }});
        let read = parse_index(document.to_string().as_bytes(), |path| path.starts_with("apis/a/")).unwrap();
        assert_eq!(
            read.into_iter().collect::<Vec<_>>(),
            [("apis/a/v1".to_owned(), "/openapi/v3/apis/a/v1?hash=1".to_owned())]
        );
        for bad in ["", "{}", "{\"paths\":[]}", "{\"paths\":{\"a\":1}}"] {
            assert!(parse_index(bad.as_bytes(), |_| true).is_err(), "{bad}");
        }
    }
}
