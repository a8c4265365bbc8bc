//! apigatewayv2 API.

use std::sync::LazyLock;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::apigatewayv2::{ACTIONS, arn, call, list, sync_tags};
use crate::{
    client::{APIGATEWAYV2, Failure, Result, Session, optional, sha256_hex},
    fields::{Case, Difference, from_json, parse, to_json},
    kind::{About, Deletion, Kind, Object, Observed, Tags, UID_TAG, differs},
};

#[derive(Debug)]
pub(crate) struct Api;

static ABOUT: About = About {
    service: &APIGATEWAYV2,
    kind: "API",
    plural: "apis",
    spec: LazyLock::new(|| {
        parse(
            "apiKeySelectionExpression basepath^ body^
             corsConfiguration{allowCredentials:b allowHeaders[] allowMethods[] allowOrigins[] exposeHeaders[] maxAge:i}
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
    actions: ACTIONS,
    columns: &[("ENDPOINT", "string", ".status.apiEndpoint")],
};

/// Hash of the body, which cannot be read back.
const BODY: &str = "apigatewayv2.services.k8s.aws/body";

fn body_hash(object: &Object) -> Option<String> {
    let body = object.spec("body")?;
    // By value: formatting is no difference.
    let text =
        serde_json::from_str::<Value>(body).map_or_else(|_| body.to_owned(), |value| value.to_string());
    Some(sha256_hex(text.as_bytes())[..16].to_owned())
}

#[async_trait]
impl Kind for Api {
    fn about(&self) -> &'static About {
        &ABOUT
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
        let mut spec = from_json(&ABOUT.spec, &answer, Case::Camel);
        if object.spec("body").is_some() {
            // Everything comes from the body; only tags are ours.
            spec = json!({"tags": spec["tags"], "name": spec["name"], "protocolType": spec["protocolType"]});
        }
        let status = from_json(&ABOUT.status, &answer, Case::Camel);
        Ok(Some(Observed {
            spec,
            status,
            arn: Some(arn(aws, &format!("/apis/{id}"))),
            ..Observed::default()
        }))
    }

    async fn create(&self, aws: &Session, object: &Object) -> Result<Value> {
        let answer = match object.spec("body") {
            Some(body) => {
                let fail = object.spec["failOnWarnings"].as_bool().unwrap_or_default().to_string();
                let mut query = vec![("failOnWarnings", fail.as_str())];
                query.extend(object.spec("basepath").map(|base| ("basepath", base)));
                let body = Some(json!({"body": body}));
                aws.rest_query(&APIGATEWAYV2, "ImportApi", "PUT", "/v2/apis", &query, body).await?
            }
            None => {
                let body = to_json(&ABOUT.spec, &object.spec, Case::Camel);
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
        body_hash(object).map(|hash| (BODY, hash)).into_iter().collect()
    }

    fn refine(&self, object: &Object, _: &Observed, changed: &mut Vec<Difference>) {
        let known = object.annotations.get(BODY).and_then(Value::as_str);
        if let Some(hash) = body_hash(object)
            && known.is_some_and(|known| known != hash)
        {
            changed.push(Difference { field: "body".to_owned(), path: "body".to_owned() });
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
            call(aws, "ReimportApi", "PUT", &["apis", id], Some(json!({"body": body}))).await?;
        } else if more {
            let mut body = to_json(&ABOUT.spec, &object.spec, Case::Camel);
            if let Some(fields) = body.as_object_mut() {
                fields.retain(|name, _| !["tags", "protocolType"].contains(&name.as_str()));
                for field in ["description", "version"] {
                    if differs(changed, field) {
                        fields.entry(field).or_insert(json!(""));
                    }
                }
                if differs(changed, "disableExecuteAPIEndpoint") {
                    fields.entry("disableExecuteApiEndpoint").or_insert(json!(false));
                }
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
