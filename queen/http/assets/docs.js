SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#contract",
  deepLinking: true,
  docExpansion: "none",
  defaultModelsExpandDepth: 0,
  displayOperationId: true,
  filter: true,
  showExtensions: true,
  tryItOutEnabled: false,
  validatorUrl: null, // would send the document to somebody else
});
