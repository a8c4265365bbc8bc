//! Calls that the simulators do not have, played on top of those that they have, and the IAM actions of calls that no
//! simulator names rightly.

use std::{collections::BTreeMap, sync::Mutex};

use serde_json::{Value, json};

/// A call that was played.
pub(crate) enum Played {
    Answer(u16, String),
    /// Another call that has the same effect: method, path and body.
    Instead(String, String, String),
}

/// State of what is played.
#[derive(Default)]
pub(crate) struct Plays {
    /// Configurations of buckets, by bucket, sub-resource and id.
    configurations: Mutex<BTreeMap<(String, String, String), String>>,
    /// Access key id that calls are played with, where signatures are checked.
    pub(crate) root: Mutex<Option<String>>,
}

/// Sub-resources of buckets that the simulators lack.
const LISTS: [&str; 4] = ["analytics", "intelligent-tiering", "inventory", "metrics"];

fn query_of(uri: &str) -> BTreeMap<String, String> {
    let query = uri.split_once('?').map_or("", |(_, query)| query);
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn segments(uri: &str) -> Vec<&str> {
    uri.split('?').next().unwrap_or_default().split('/').filter(|part| !part.is_empty()).collect()
}

impl Plays {
    /// Plays a call, if the simulators lack it.
    pub(crate) fn play(&self, method: &str, uri: &str, body: &[u8]) -> Option<Played> {
        let (parts, query) = (segments(uri), query_of(uri));
        let instead = |method: &str, path: String, body: Value| {
            Some(Played::Instead(method.to_owned(), path, body.to_string()))
        };
        match (method, parts.as_slice()) {
            ("PUT", ["v2", "apis"]) => {
                let mut api = definition(body);
                api["protocolType"] = json!("HTTP");
                return instead("POST", "/v2/apis".to_owned(), api);
            }
            ("PUT", ["v2", "apis", id]) => {
                let mut api = definition(body);
                api.as_object_mut()?.remove("tags");
                return instead("PATCH", format!("/v2/apis/{id}"), api);
            }
            ("DELETE", ["v2", "apis", id, "stages", stage, "accesslogsettings"]) => {
                return instead(
                    "PATCH",
                    format!("/v2/apis/{id}/stages/{stage}"),
                    json!({"accessLogSettings": {}}),
                );
            }
            ("DELETE", ["v2", "apis", id, "stages", stage, "routesettings", _]) => {
                return instead(
                    "PATCH",
                    format!("/v2/apis/{id}/stages/{stage}"),
                    json!({"routeSettings": {}}),
                );
            }
            _ => {}
        }
        let [bucket] = parts.as_slice() else { return None };
        if method == "DELETE" && query.is_empty() {
            // What a bucket was given goes with it.
            self.configurations.lock().expect("configurations").retain(|key, _| key.0 != *bucket);
        }
        let parts = [
            ("abac", "<AbacStatus/>"),
            (
                "requestPayment",
                "<RequestPaymentConfiguration><Payer>BucketOwner</Payer></RequestPaymentConfiguration>",
            ),
        ];
        if let Some((part, default)) = parts.into_iter().find(|(part, _)| query.contains_key(*part)) {
            return Some(self.part(method, (bucket, part), default, body));
        }
        let list = LISTS.into_iter().find(|list| query.contains_key(*list))?;
        Some(self.configuration(method, bucket, list, query.get("id").cloned().unwrap_or_default(), body))
    }

    fn part(&self, method: &str, (bucket, part): (&str, &str), default: &str, body: &[u8]) -> Played {
        let key = (bucket.to_owned(), part.to_owned(), String::new());
        let mut all = self.configurations.lock().expect("configurations");
        match method {
            "PUT" => {
                all.insert(key, String::from_utf8_lossy(body).into_owned());
                Played::Answer(200, String::new())
            }
            _ => Played::Answer(200, all.get(&key).cloned().unwrap_or(default.to_owned())),
        }
    }

    fn configuration(&self, method: &str, bucket: &str, list: &str, id: String, body: &[u8]) -> Played {
        let key = (bucket.to_owned(), list.to_owned(), id);
        let mut all = self.configurations.lock().expect("configurations");
        match method {
            "PUT" => {
                all.insert(key, String::from_utf8_lossy(body).into_owned());
                Played::Answer(200, String::new())
            }
            "DELETE" => match all.remove(&key) {
                Some(_) => Played::Answer(204, String::new()),
                None => Played::Answer(404, "<Error><Code>NoSuchConfiguration</Code></Error>".to_owned()),
            },
            _ => {
                let of = |known: &(String, String, String)| known.0 == key.0 && known.1 == key.1;
                let found = all.iter().filter(|(known, _)| of(known)).map(|(_, text)| text.as_str());
                let items: String = found.collect();
                Played::Answer(200, format!("<List><IsTruncated>false</IsTruncated>{items}</List>"))
            }
        }
    }
}

/// Reads the fields of an API from an OpenAPI definition.
fn definition(body: &[u8]) -> Value {
    let request: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = request["body"].as_str().unwrap_or_default();
    let definition: Value = serde_json::from_str(text).unwrap_or_default();
    let tags = definition["tags"].as_array().into_iter().flatten();
    let tags = tags.filter_map(|tag| {
        let value = tag["x-amazon-apigateway-tag-value"].as_str()?;
        Some((tag["name"].as_str()?.to_owned(), json!(value)))
    });
    let info = &definition["info"];
    json!({"name": info["title"], "version": info["version"], "description": info["description"],
        "tags": Value::Object(tags.collect())})
}

/// Returns the IAM action of a call that no simulator names rightly, as AWS' Service Authorization Reference has it.
pub(crate) fn action_of(method: &str, uri: &str) -> Option<String> {
    let (parts, query) = (segments(uri), query_of(uri));
    let verb = match method {
        "GET" => "Get",
        "PUT" => "Put",
        "DELETE" => "Delete",
        _ => "",
    };
    let lambda = match (method, parts.as_slice()) {
        ("PUT", ["v2", "apis", ..]) => return Some("apigateway:PUT".to_owned()),
        ("POST", [_, "functions"]) => "CreateFunction".to_owned(),
        ("GET" | "DELETE", [_, "functions", _]) => format!("{verb}Function"),
        (_, [_, "functions", _, "configuration"]) => "UpdateFunctionConfiguration".to_owned(),
        (_, [_, "functions", _, "code"]) => "UpdateFunctionCode".to_owned(),
        (_, [_, "functions", _, "concurrency"]) => format!("{verb}FunctionConcurrency"),
        (_, [_, "functions", _, "event-invoke-config"]) => format!("{verb}FunctionEventInvokeConfig"),
        (_, [_, "functions", _, "code-signing-config"]) => format!("{verb}FunctionCodeSigningConfig"),
        (_, [_, "functions", _, "provisioned-concurrency"]) => format!("{verb}ProvisionedConcurrencyConfig"),
        ("POST", [_, "functions", _, "aliases"]) => "CreateAlias".to_owned(),
        ("PUT", [_, "functions", _, "aliases", _]) => "UpdateAlias".to_owned(),
        (_, [_, "functions", _, "aliases", _]) => format!("{verb}Alias"),
        ("GET", [_, "functions", _, "policy"]) => "GetPolicy".to_owned(),
        ("POST", [_, "functions", _, "policy"]) => "AddPermission".to_owned(),
        ("DELETE", [_, "functions", _, "policy", _]) => "RemovePermission".to_owned(),
        ("POST", ["2017-03-31", "tags", ..]) => "TagResource".to_owned(),
        ("DELETE", ["2017-03-31", "tags", ..]) => "UntagResource".to_owned(),
        (_, [_]) => {
            let names = [
                ("abac", "BucketAbac"),
                ("requestPayment", "BucketRequestPayment"),
                ("analytics", "AnalyticsConfiguration"),
                ("intelligent-tiering", "IntelligentTieringConfiguration"),
                ("inventory", "InventoryConfiguration"),
                ("metrics", "MetricsConfiguration"),
            ];
            let (_, name) = names.into_iter().find(|(part, _)| query.contains_key(*part))?;
            // Removing a configuration is putting another.
            let verb = if method == "GET" { "Get" } else { "Put" };
            return Some(format!("s3:{verb}{name}"));
        }
        _ => return None,
    };
    Some(format!("lambda:{lambda}"))
}
