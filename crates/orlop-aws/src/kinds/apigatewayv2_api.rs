//! apigatewayv2 API.

use std::sync::LazyLock;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::apigatewayv2::{arn, call, list, sync_tags, update_body};
use crate::{
    client::{APIGATEWAYV2, Failure, Result, Session, optional, path, sha256_hex},
    fields::{Case, Difference, from_json, parse, to_json},
    kind::{Deletion, Descriptor, Kind, Object, Observed, Tags, UID_TAG, differs, tags_of},
};

#[derive(Debug)]
pub(crate) struct Api;

static DESCRIPTOR: Descriptor = Descriptor {
    service: &APIGATEWAYV2,
    kind: "API",
    plural: "apis",
    spec: LazyLock::new(|| {
        parse(
            "apiKeySelectionExpression basepath^ body^
             corsConfiguration~{allowCredentials:b~ allowHeaders~[] allowMethods~[] allowOrigins~[] exposeHeaders~[]
                 maxAge:i~}
             credentialsARN^ description~ disableExecuteAPIEndpoint:b~ disableSchemaValidation:b failOnWarnings^:b name
             protocolType routeKey^ routeSelectionExpression tags~{} target^ version~",
        )
    }),
    status: LazyLock::new(|| {
        parse("apiEndpoint apiGatewayManaged:b apiID createdDate:t importInfo[] warnings[]")
    }),
    adoption: &[("apiID", "status.apiID")],
    identity: &["protocolType"],
    references: &[],
    terminal: &["BadRequestException"],
    late: &[],
    tags: Tags::Map("tags"),
    resync: None,
    actions: &[
        "apigateway:GET",
        "apigateway:POST",
        "apigateway:PATCH",
        "apigateway:PUT",
        "apigateway:DELETE",
    ],
    columns: &[("ENDPOINT", "string", ".status.apiEndpoint")],
};

/// Hash of the body, which cannot be read back.
const BODY: &str = "apigatewayv2.services.k8s.aws/body";
/// Hash of the fields of a quick create, which cannot be read back either.
const QUICK: &str = "apigatewayv2.services.k8s.aws/quick-create";
const QUICK_FIELDS: [&str; 3] = ["credentialsARN", "routeKey", "target"];

fn short_hash(text: &str) -> String {
    sha256_hex(text.as_bytes())[..16].to_owned()
}

fn body_hash(object: &Object) -> Option<String> {
    let body = object.spec("body")?;
    // By value: formatting is no difference.
    let text =
        serde_json::from_str::<Value>(body).map_or_else(|_| body.to_owned(), |value| value.to_string());
    Some(short_hash(&format!("{}{text}", object.spec("basepath").unwrap_or_default())))
}

/// Returns the hash of the fields of a quick create, of an object that has any or had some.
fn quick_hash(object: &Object) -> Option<String> {
    let given = QUICK_FIELDS.map(|field| object.spec(field).unwrap_or_default());
    let had = object.annotations.get(QUICK).is_some();
    (had || given.iter().any(|text| !text.is_empty())).then(|| short_hash(&given.join("\n")))
}

/// Returns the definition with the object's tags in it: an import takes them from nowhere else, and by the UID among
/// them an API is found again whose identifier was lost.
fn tagged_body(object: &Object, body: &str) -> String {
    let parsed = serde_json::from_str::<Value>(body).ok().or_else(|| serde_saphyr::from_str(body).ok());
    let Some(mut definition) = parsed.filter(Value::is_object) else { return body.to_owned() };
    let tags = tags_of(object.spec.get("tags"));
    let listed = definition["tags"].as_array().cloned().unwrap_or_default();
    let is_ours = |tag: &Value| tags.iter().any(|(key, _)| tag["name"] == key.as_str());
    let mut all: Vec<Value> = listed.into_iter().filter(|tag| !is_ours(tag)).collect();
    all.extend(tags.iter().map(|(key, value)| json!({"name": key, "x-amazon-apigateway-tag-value": value})));
    definition["tags"] = Value::Array(all);
    definition.to_string()
}

/// Imports the definition as a new API, or over the one of an identifier.
async fn import(aws: &Session, object: &Object, body: &str, id: Option<&str>) -> Result<Value> {
    let fail = object.spec["failOnWarnings"].as_bool().unwrap_or_default().to_string();
    let mut query = vec![("failOnWarnings", fail.as_str())];
    query.extend(object.spec("basepath").map(|base| ("basepath", base)));
    let body = Some(json!({"body": tagged_body(object, body)}));
    match id {
        Some(id) => {
            let address = path(&["v2", "apis", id]);
            aws.rest_query(&APIGATEWAYV2, "ReimportApi", "PUT", &address, &query, body).await
        }
        None => aws.rest_query(&APIGATEWAYV2, "ImportApi", "PUT", "/v2/apis", &query, body).await,
    }
}

#[async_trait]
impl Kind for Api {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    fn validate(&self, object: &Object) -> Result<()> {
        if object.spec("body").is_none() {
            if object.spec("name").is_none() || object.spec("protocolType").is_none() {
                return Err(Failure::Terminal(
                    "'Name' and 'ProtocolType' are required properties if 'Body' field is not present"
                        .to_owned(),
                ));
            }
            return Ok(());
        }
        let allowed = ["body", "basepath", "failOnWarnings", "tags"];
        let fields = object.spec.as_object().into_iter().flatten();
        if fields.into_iter().any(|(name, value)| !value.is_null() && !allowed.contains(&name.as_str())) {
            return Err(Failure::Terminal(
                "only 'FailOnWarnings' and 'Basepath' fields can be used with 'Body' field".to_owned(),
            ));
        }
        Ok(())
    }

    async fn read(&self, aws: &Session, object: &Object) -> Result<Option<Observed>> {
        let Some(id) = object.status("apiID") else { return Ok(None) };
        let Some(answer) = optional(call(aws, "GetApi", "GET", &["apis", id], None).await, &[])? else {
            return Ok(None);
        };
        let mut spec = from_json(&DESCRIPTOR.spec, &answer, Case::Camel);
        if object.spec("body").is_some() {
            // Everything comes from the body; only tags are ours.
            spec = json!({"tags": spec["tags"], "name": spec["name"], "protocolType": spec["protocolType"]});
        }
        let status = from_json(&DESCRIPTOR.status, &answer, Case::Camel);
        Ok(Some(Observed {
            spec,
            status,
            arn: Some(arn(aws, &format!("/apis/{id}"))),
            ..Observed::default()
        }))
    }

    async fn create(&self, aws: &Session, object: &Object) -> Result<Value> {
        let answer = match object.spec("body") {
            Some(body) => import(aws, object, body, None).await?,
            None => {
                let body = to_json(&DESCRIPTOR.spec, &object.spec, Case::Camel);
                call(aws, "CreateApi", "POST", &["apis"], Some(body)).await?
            }
        };
        Ok(json!({"apiID": answer["apiId"]}))
    }

    async fn find(&self, aws: &Session, object: &Object) -> Result<Option<Value>> {
        let all = list(aws, "GetApis", &["apis"]).await?;
        let ours = all.iter().find(|api| api["tags"][UID_TAG] == object.uid.as_str());
        Ok(ours.map(|api| json!({"apiID": api["apiId"]})))
    }

    fn annotations(&self, object: &Object) -> Vec<(&'static str, String)> {
        let body = body_hash(object).map(|hash| (BODY, hash));
        body.into_iter().chain(quick_hash(object).map(|hash| (QUICK, hash))).collect()
    }

    fn refine(&self, object: &Object, _: &Observed, changed: &mut Vec<Difference>) {
        let known = object.annotations.get(BODY).and_then(Value::as_str);
        if let Some(hash) = body_hash(object)
            && known.is_some_and(|known| known != hash)
        {
            changed.push(Difference { field: "body".to_owned(), path: "body".to_owned() });
        }
        let known = object.annotations.get(QUICK).and_then(Value::as_str);
        if known.is_some_and(|known| quick_hash(object).is_some_and(|hash| hash != known)) {
            changed.push(Difference { field: "target".to_owned(), path: "target".to_owned() });
        }
    }

    async fn update(
        &self,
        aws: &Session,
        object: &Object,
        observed: &Observed,
        changed: &[Difference],
    ) -> Result<()> {
        let id = object.status("apiID").unwrap_or_default();
        let more = sync_tags(aws, &arn(aws, &format!("/apis/{id}")), object, observed, changed).await?;
        if let Some(body) = object.spec("body").filter(|_| differs(changed, "body")) {
            import(aws, object, body, Some(id)).await?;
        } else if more {
            if differs(changed, "target") && object.spec("target").is_none() {
                return Err(Failure::Terminal(
                    "target: an API that was created with a target always has one; it can be changed, not removed"
                        .to_owned(),
                ));
            }
            if differs(changed, "corsConfiguration") && object.spec.get("corsConfiguration").is_none() {
                call(aws, "DeleteCorsConfiguration", "DELETE", &["apis", id, "cors"], None).await?;
            }
            let mut body = update_body(&DESCRIPTOR, object, observed, changed);
            if let Some(fields) = body.as_object_mut() {
                fields.retain(|name, _| !["tags", "protocolType"].contains(&name.as_str()));
            }
            call(aws, "UpdateApi", "PATCH", &["apis", id], Some(body)).await?;
        }
        Ok(())
    }

    async fn delete(&self, aws: &Session, object: &Object, _: &Observed) -> Result<Deletion> {
        let id = object.status("apiID").unwrap_or_default();
        optional(call(aws, "DeleteApi", "DELETE", &["apis", id], None).await, &[])?;
        Ok(Deletion::Gone)
    }
}
