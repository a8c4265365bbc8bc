//! Long lists, which are streamed, equal short ones in every encoding.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::io::Read;

use http::{Response, header};
use http_body_util::BodyExt;
use orlop_api::protobuf;
use orlop_server::{chain::Chain, http::body::Body};
use serde_json::{Value, json};
use support::{ask, call, create, get, server, whole};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PROTOBUF: &str = protobuf::MEDIA_TYPE;
/// More than one page of the store, and than the held part of a protobuf list.
const OBJECTS: usize = 620;
const VALUE_BYTES: usize = 7 << 10;

/// An encoding of a list: Accept header and query.
#[derive(Clone, Copy, Debug)]
struct Form {
    accept: &'static str,
    query: &'static str,
}

const FORMS: [Form; 11] = [
    Form { accept: "application/json", query: "" },
    Form { accept: "application/json", query: "pretty=true" },
    Form { accept: "application/yaml", query: "" },
    Form { accept: PROTOBUF, query: "" },
    Form { accept: "application/json;as=Table;g=meta.k8s.io;v=v1", query: "" },
    Form {
        accept: "application/json;as=Table;g=meta.k8s.io;v=v1",
        query: "includeObject=Object&pretty=true",
    },
    Form { accept: "application/json;as=Table;g=meta.k8s.io;v=v1beta1", query: "includeObject=None" },
    Form { accept: "application/yaml;as=Table;g=meta.k8s.io;v=v1", query: "includeObject=Object" },
    Form { accept: "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", query: "" },
    Form { accept: "application/yaml;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", query: "" },
    Form {
        accept: "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        query: "",
    },
];

impl Form {
    async fn ask(self, chain: &Chain, query: &str) -> Response<Body> {
        let path = format!("{CONFIG_MAPS}?{}&{query}", self.query);
        ask(chain, "GET", &path, &[("accept", self.accept)], "").await
    }

    /// Returns a list, and true if its body was complete.
    async fn list(self, chain: &Chain, query: &str) -> (Value, bool) {
        let response = self.ask(chain, query).await;
        let is_whole = response.body().exact_length().is_some();
        let (code, headers, body) = whole(response).await;
        assert_eq!(code, 200, "{self:?}");
        assert_eq!(headers[header::CONTENT_TYPE], self.accept.split(';').next().unwrap());
        (self.read(&body), is_whole)
    }

    fn read(self, body: &[u8]) -> Value {
        match self.accept.split(';').next().unwrap() {
            "application/json" => serde_json::from_slice(body).unwrap(),
            "application/yaml" => serde_saphyr::from_slice(body).unwrap(),
            _ => protobuf::decode(body).unwrap(),
        }
    }

    /// Returns the field of the items.
    fn items(self) -> &'static str {
        if self.accept.contains("Table") { "rows" } else { "items" }
    }
}

/// Returns text of a length with characters that need escapes.
fn text(n: usize) -> String {
    let hard = [
        "- a: b\n",
        "\n\n",
        "  indented\nless\n",
        "\ttab",
        "no\r\n",
        "\u{85}\u{2028}",
        "\"'\\{}[],#&*!|>%@`",
    ];
    let end = ["", "\n", "\n\n", " ", "\n  ", "#"][n % 6];
    let mut text = hard[n % hard.len()].repeat(3);
    text.push_str(&"x".repeat(VALUE_BYTES.saturating_sub(text.len())));
    text + end
}

/// Removes the age column of a table.
fn without_ages(mut list: Value) -> Value {
    for row in list["rows"].as_array_mut().into_iter().flatten() {
        row["cells"][2].take();
    }
    list
}

async fn filled() -> Chain {
    let (chain, _) = server().await;
    for n in 0..OBJECTS {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("m-{n:04}"), "labels": {"n": n.to_string()},
                "annotations": {"text": text(n).chars().take(20).collect::<String>()}},
            "data": {"number": n.to_string(), "text": text(n)}});
        create(&chain, CONFIG_MAPS, &object).await;
    }
    chain
}

#[tokio::test]
async fn long_list_equals_its_pages_in_every_encoding() {
    let chain = filled().await;
    for form in FORMS {
        let (long, is_whole) = form.list(&chain, "").await;
        assert_eq!(is_whole, form.query == "includeObject=None", "{form:?}: only short lists are held");
        let mut joined: Option<Value> = None;
        let mut token = String::new();
        loop {
            let (mut page, _) = form.list(&chain, &format!("limit=90&continue={token}")).await;
            token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
            let left = page["metadata"]["remainingItemCount"].as_u64().unwrap_or_default() as usize;
            match &mut joined {
                None => joined = Some(page),
                Some(joined) => {
                    let more = page[form.items()].as_array_mut().unwrap();
                    joined[form.items()].as_array_mut().unwrap().append(more);
                }
            }
            let joined = joined.as_ref().unwrap()[form.items()].as_array().unwrap().len();
            assert_eq!(joined + left, OBJECTS, "{form:?}");
            if token.is_empty() {
                break;
            }
        }
        let mut joined = joined.unwrap();
        joined["metadata"] = long["metadata"].clone();
        let (long, joined) = (without_ages(long), without_ages(joined));
        assert!(long == joined, "{form:?}");
        assert_eq!(long["metadata"].as_object().unwrap().len(), 1, "{form:?}");
    }
}

#[tokio::test]
async fn every_encoding_of_a_list_has_the_same_objects() {
    let chain = filled().await;
    let (_, plain) = get(&chain, CONFIG_MAPS).await;
    for form in FORMS {
        for query in ["", "limit=3", "labelSelector=n+in+(5,70,619,700)", "labelSelector=n%3Dnone"] {
            let (_, plain) = get(&chain, &format!("{CONFIG_MAPS}?{query}")).await;
            let (list, is_whole) = form.list(&chain, query).await;
            assert!(query.is_empty() || is_whole, "{form:?} {query}");
            assert_eq!(list["metadata"], plain["metadata"], "{form:?} {query}");
            let told = list[form.items()].as_array().map(Vec::as_slice).unwrap_or_default();
            let objects = plain["items"].as_array().unwrap();
            assert_eq!(told.len(), objects.len(), "{form:?} {query}");
            for (told, object) in told.iter().zip(objects) {
                let shown = if form.items() == "rows" {
                    assert_eq!(told["cells"][0], object["metadata"]["name"]);
                    &told["object"]
                } else {
                    told
                };
                if !shown.is_null() {
                    assert_eq!(shown["metadata"], object["metadata"], "{form:?}");
                }
                if shown.get("data").is_some() {
                    assert_eq!(shown["data"], object["data"], "{form:?}");
                }
            }
        }
    }
    assert_eq!(plain["items"].as_array().unwrap().len(), OBJECTS);
}

#[tokio::test]
async fn slow_list_is_of_one_revision() {
    let chain = filled().await;
    for form in FORMS {
        if form.query.contains("None") {
            // All frames are ready.
            continue;
        }
        let (before, _) = form.list(&chain, "").await;
        let mut body = form.ask(&chain, "").await.into_body();
        let mut taken = body.frame().await.unwrap().unwrap().into_data().unwrap().to_vec();
        let merge = json!({"data": {"number": format!("{form:?}")}});
        for n in [1, 350, 619] {
            let (code, _) = call(&chain, "PATCH", &format!("{CONFIG_MAPS}/m-{n:04}"), Some(&merge)).await;
            assert_eq!(code, 200);
        }
        create(&chain, CONFIG_MAPS, &support::config_map("z", &json!({}))).await;
        taken.extend_from_slice(&body.collect().await.unwrap().to_bytes());
        assert!(without_ages(form.read(&taken)) == without_ages(before), "{form:?}");
        let (code, _) = call(&chain, "DELETE", &format!("{CONFIG_MAPS}/z"), None).await;
        assert_eq!(code, 200);
    }
}

#[tokio::test]
async fn residual_selectors_paginate_in_every_encoding() {
    let chain = filled().await;
    for form in FORMS {
        let (mut names, mut token) = (Vec::new(), String::new());
        loop {
            let query = format!("labelSelector=n%3E99&limit=250&continue={token}");
            let (page, _) = form.list(&chain, &query).await;
            for item in page[form.items()].as_array().unwrap() {
                let name = if form.items() == "rows" { &item["cells"][0] } else { &item["metadata"]["name"] };
                names.push(name.as_str().unwrap().to_owned());
            }
            assert!(page["metadata"].get("remainingItemCount").is_none(), "{form:?}");
            token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
            if token.is_empty() {
                break;
            }
        }
        let expected: Vec<String> = (100..OBJECTS).map(|n| format!("m-{n:04}")).collect();
        assert_eq!(names, expected, "{form:?}");
    }
}

#[tokio::test]
async fn compressed_list_decompresses_to_the_plain_list() {
    let chain = filled().await;
    for form in FORMS {
        let path = format!("{CONFIG_MAPS}?{}", form.query);
        let headers = [("accept", form.accept), ("accept-encoding", "gzip")];
        let (_, headers, body) = whole(ask(&chain, "GET", &path, &headers, "").await).await;
        let mut list = Vec::new();
        if headers.contains_key(header::CONTENT_ENCODING) {
            flate2::read::GzDecoder::new(&body[..]).read_to_end(&mut list).unwrap();
        } else {
            assert!(body.len() < 128 << 10, "{form:?}: {} bytes", body.len());
            list = body.to_vec();
        }
        let (plain, _) = form.list(&chain, "").await;
        assert!(without_ages(form.read(&list)) == without_ages(plain), "{form:?}");
    }
}
