//! apigatewayv2 DomainName.

use std::{sync::LazyLock, time::Duration};

use async_trait::async_trait;
use serde_json::{Value, json};

use super::apigatewayv2::{arn, call, sync_tags};
use crate::{
    client::{ACM, APIGATEWAYV2, Failure, Result, Session, optional},
    fields::{Case, Difference, from_json, parse, to_json},
    kind::{Deletion, Descriptor, Kind, Object, Observed, Tags, differs},
};

#[derive(Debug)]
pub(crate) struct DomainName;

static DESCRIPTOR: Descriptor = Descriptor {
    service: &APIGATEWAYV2,
    kind: "DomainName",
    plural: "domainnames",
    spec: LazyLock::new(|| {
        parse(
            "domainName!
             domainNameConfigurations[]{certificateARN certificateName endpointType
                 ownershipVerificationCertificateARN securityPolicy}
             mutualTLSAuthentication~{truststoreURI~ truststoreVersion} tags~{}",
        )
    }),
    status: LazyLock::new(|| {
        parse(
            "apiMappingSelectionExpression
             domainNameConfigurations[]{apiGatewayDomainName hostedZoneID domainNameStatus domainNameStatusMessage}",
        )
    }),
    adoption: &[("domainName", "spec.domainName")],
    identity: &["domainName"],
    references: &[],
    terminal: &["BadRequestException"],
    late: &[],
    tags: Tags::Map("tags"),
    resync: None,
    actions: &[
        "apigateway:GET",
        "apigateway:POST",
        "apigateway:PATCH",
        "apigateway:DELETE",
        "acm:DescribeCertificate",
        "iam:CreateServiceLinkedRole",
        "s3:GetObject",
    ],
    columns: &[("DOMAIN", "string", ".spec.domainName")],
};

/// True if a certificate exists and waits for its validation. A denied read counts as pending.
async fn is_pending(aws: &Session, certificate: &str) -> Result<bool> {
    let read = aws.json(&ACM, "DescribeCertificate", json!({"CertificateArn": certificate})).await;
    let answer = optional(read, &[])?;
    Ok(answer.is_some_and(|answer| answer["Certificate"]["Status"] == "PENDING_VALIDATION"))
}

#[async_trait]
impl Kind for DomainName {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    async fn read(&self, aws: &Session, object: &Object) -> Result<Option<Observed>> {
        let name = object.need("domainName");
        let read = call(aws, "GetDomainName", "GET", &["domainnames", name], None).await;
        let Some(answer) = optional(read, &[])? else { return Ok(None) };
        let spec = from_json(&DESCRIPTOR.spec, &answer, Case::Camel);
        let status = from_json(&DESCRIPTOR.status, &answer, Case::Camel);
        let states = answer["domainNameConfigurations"].as_array().into_iter().flatten();
        let busy = states
            .filter_map(|configuration| configuration["domainNameStatus"].as_str())
            .find(|state| !state.is_empty() && *state != "AVAILABLE");
        let pending = busy.map(|state| (format!("domain name is {state}"), Duration::from_secs(15)));
        let arn = arn(aws, &format!("/domainnames/{name}"));
        Ok(Some(Observed { spec, status, arn: Some(arn), pending, failed: None }))
    }

    async fn create(&self, aws: &Session, object: &Object) -> Result<Value> {
        let body = to_json(&DESCRIPTOR.spec, &object.spec, Case::Camel);
        match call(aws, "CreateDomainName", "POST", &["domainnames"], Some(body)).await {
            Ok(_) => Ok(json!({})),
            Err(failure) if failure.is(&["BadRequestException"]) => {
                for configuration in object.spec["domainNameConfigurations"].as_array().into_iter().flatten()
                {
                    if let Some(certificate) = configuration["certificateARN"].as_str()
                        && is_pending(aws, certificate).await?
                    {
                        let message = format!("certificate {certificate} is not issued yet");
                        return Err(Failure::Wait { after: Duration::from_secs(30), message });
                    }
                }
                Err(failure)
            }
            Err(failure) => Err(failure),
        }
    }

    async fn update(
        &self,
        aws: &Session,
        object: &Object,
        observed: &Observed,
        changed: &[Difference],
    ) -> Result<()> {
        let name = object.need("domainName");
        let arn = arn(aws, &format!("/domainnames/{name}"));
        if sync_tags(aws, &arn, object, observed, changed).await? {
            let mut body = to_json(&DESCRIPTOR.spec, &object.spec, Case::Camel);
            if let Some(fields) = body.as_object_mut() {
                fields.retain(|name, _| !["domainName", "tags"].contains(&name.as_str()));
                if differs(changed, "mutualTLSAuthentication") {
                    // An empty trust store turns it off.
                    fields.entry("mutualTlsAuthentication").or_insert(json!({"truststoreUri": ""}));
                }
            }
            call(aws, "UpdateDomainName", "PATCH", &["domainnames", name], Some(body)).await?;
        }
        Ok(())
    }

    async fn delete(&self, aws: &Session, object: &Object, _: &Observed) -> Result<Deletion> {
        let segments = ["domainnames", object.need("domainName")];
        optional(call(aws, "DeleteDomainName", "DELETE", &segments, None).await, &[])?;
        Ok(Deletion::Gone)
    }
}
